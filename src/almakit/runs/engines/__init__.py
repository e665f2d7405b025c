"""Who does a run's pieces of work: this process, or others. An engine only computes; the caller stores."""
