"""From a request to a folder of judged records, resumable at every step of every chunk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch
from torch import nn

from ..core.oracle import borrowed
from . import folder
from .attack_text import build_all
from .checks import check, settle
from .executors import Auto, Executor, InProcess, Processes, threads_per_process
from .plan import Job, Request, introduction, own_code, plan
from .ray import RayExecutor
from .resume import agree, continue_in, extended, facts_of, same_answers, state_of
from .session import Session, Stop, tell
from .spec import AUTO
from .store import Store, database_name, files, only_writer

SMALL_WEIGHTS, SMALL_IMAGE = 20_000_000, 3 * 96 * 96
"""A model of so many weights at most, on images of so many numbers, is small: threads inside its layers gain little,
processes beside it much."""


@contextmanager
def prepared(request: Request) -> Iterator[tuple[Job, Session | None]]:
    """The job of a request, opened and agreed with what its folder holds, and the session that does what is left; None
    where nothing is."""
    if request.add:
        spec, attacks = extended(request.spec, list(request.attacks), request.out)
        request = replace(request, spec=spec, attacks=attacks)
        request.check_radii()
    out, shard, progress, trackers = request.out, request.shard, request.progress, request.trackers
    spec, recorded = continue_in(request.spec, out, request.add)
    job, findings = plan(request, spec), None
    with ExitStack() as stack:
        stop = stack.enter_context(Stop().watching())
        if recorded is None:
            for sentence in introduction(job, request):
                progress.note(sentence)
            findings = check(job, request)
            job = settle(job, progress)
        tell(trackers, {"event": "begin", "settings": job.spec.to_dict(), "folder": str(out)})
        stack.enter_context(only_writer(out / database_name(shard)))
        recorded = continue_in(job.spec, out, request.add)[1]  # again, now that no other process writes here
        # The spec is written first: a run that is killed in between resumes with the same chunks and attacks.
        if recorded is None or (recorded.attacks, recorded.epsilon) != (job.spec.attacks, job.spec.epsilon):
            files.write_bytes(out / folder.SPEC, job.spec.to_toml().encode())
        store = stack.enter_context(Store(out / database_name(shard)))
        agree(store, job, facts_of(job, shard))
        state = state_of(store, job, out, progress)
        same_answers(job, state)
        if all(state.next(job, chunk) is None for chunk in job.chunks(shard)):
            progress.note("Nothing is left to do: every chunk of this run is stored.")
            yield job, None
            return
        store.set_findings(check(job, request) if findings is None else findings)
        stack.enter_context(borrowed(job.subject.model))
        executor, threads = executor_for(request, job)
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(threads or torch.get_num_threads())
        session = Session(store, job, state, out, shard, stop, progress, executor, trackers)
        if isinstance(request.engine, str):
            stack.callback(lambda: session.executor.close())
        yield job, session


def executor_for(request: Request, job: Job) -> tuple[Executor, int | None]:
    """The executor a request names, for its job, and the threads of this process where they matter: numbers must not
    depend on ``workers``."""
    progress, workers = request.progress, request.workers
    if not isinstance(request.engine, str):
        return request.engine, None
    if request.engine == "ray":
        return RayExecutor(request.address, workers if isinstance(workers, int) else None, progress), None
    if workers is None:
        return InProcess(), None
    why = _why_alone(job)
    if why and workers not in (AUTO, 1):
        progress.note(f"This run stays in one process: {why}.")
    if why or (workers == AUTO and not small(job)):
        return InProcess(), None
    threads = threads_per_process()
    if not isinstance(workers, int):
        return Auto(), threads
    count = min(workers, len(job.chunks(request.shard)))
    return Processes(count) if count > 1 else InProcess(), threads


def _why_alone(job: Job) -> str:
    """Why a run cannot be shared with other processes; empty where it can."""
    if job.subject.device.type != "cpu":
        return f"its model is on {job.subject.device}"
    if own_code(job.spec.goal):
        return "its goal is code of your own, which worker processes do not have"
    for subject, what in ((job.subject, "model"), (job.surrogate, "surrogate")):
        if subject is not None and not subject.by_name:
            return f"its {what} was given in Python; worker processes load theirs by name or from a file"
    try:
        same = build_all(job.spec.attacks) == list(job.attacks)
    except Exception:  # its text names a function or a class that only this process has
        same = False
    return "" if same else "an attack was given in Python; worker processes make theirs from a text"


def small(job: Job) -> bool:
    """Whether processes beside each other serve a model better than threads inside its layers."""
    model = job.subject.model
    weights = sum(part.numel() for part in model.parameters()) if isinstance(model, nn.Module) else 0
    return weights <= SMALL_WEIGHTS and job.dataset.chunk(range(min(1, len(job.dataset)))).x[:1].numel() <= SMALL_IMAGE
