"""The evaluation engine: a run's specification, its execution, verdicts, records and store.

Nothing is imported here: ``records``, ``store``, ``spec`` and ``folder`` work without torch, so that reports can be
made where there is none.
"""
