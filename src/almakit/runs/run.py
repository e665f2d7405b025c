"""From a specification to a folder of judged records, resumable at every chunk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..core import Attack
from ..core.model import borrowed
from ..errors import BadInput
from . import folder
from .attack_text import build_all, text_of
from .checks import check
from .engines.choose import opened
from .plan import Job, Options, introduction, plan
from .radii import for_distances
from .resume import agree, continue_in, extended, facts_of, remaining, same_answers
from .session import Session, Stop, tell, told
from .spec import AUTO, RunSpec
from .store import Store, database_name, files, only_writer
from .tuning import settle


def execute(spec: RunSpec, out: Path, options: Options) -> Job:
    """Carries a specification out in the folder ``out``, going on where it was stopped; what was to do."""
    show, shard = options.progress, options.shard
    spec, attacks, begun = _asked(spec, out, options)
    job = plan(spec, attacks, options)
    facts = facts_of(job, shard)
    stop = Stop()
    with stop.watching():
        findings = None
        if not begun:
            for sentence in introduction(job, options):
                show.note(sentence)
            findings = check(job, options)
            job = settle(job, show)
        tell(options.trackers, {"event": "begin", "settings": job.spec.to_dict(), "folder": str(out)})
        database = out / database_name(shard)
        with only_writer(database), _opened(job.spec, out, database, options.add) as store:
            agree(store, job, facts)
            progress, todo = remaining(store, job, shard, out, show)
            same_answers(job, progress, todo)
            if not todo and progress.classes:
                show.note("Nothing is left to do: every chunk of this run is stored.")
                return job
            store.set_findings(check(job, options) if findings is None else findings)
            with (
                borrowed(job.subject.model),
                opened(options.engine, job, options.address, options.workers, show) as engine,
            ):
                Session(store, job, progress, out, shard, stop, show, told(engine, options.trackers)).run()
    return job


def _asked(spec: RunSpec, out: Path, options: Options) -> tuple[RunSpec, list[Attack], bool]:
    """The spec as the folder has it, its attacks built, and whether the folder was begun before."""
    built = build_all(spec.attacks) if options.attacks is None else list(options.attacks)
    spec = replace(spec, attacks=tuple(text_of(attack) for attack in built))
    if options.add:
        if options.shard is not None:
            raise BadInput("attacks are added to a whole run: leave --shard out.")
        spec, built = extended(spec, built, out)
    distances = [repr(attack.measure) for attack in built]
    for_distances(spec.epsilon, distances)
    for_distances(spec.stop_within, distances, "stop_within")
    spec, begun = continue_in(spec, out, options.add)
    if options.shard is not None and spec.batch_size == AUTO:
        raise BadInput(
            "shards must share one chunk grid: --batch-size auto would be measured by each; leave it out or give a "
            "value, the same for all shards."
        )
    return spec, built, begun


def _opened(spec: RunSpec, out: Path, database: Path, add: bool) -> Store:
    """The database of the run, after its spec is on disk: a run that is killed in between goes on with the same grid
    and attacks. Radii may change."""
    if not continue_in(spec, out, add)[1] or add or RunSpec.from_toml(out / folder.SPEC).epsilon != spec.epsilon:
        files.write_bytes(out / folder.SPEC, spec.to_toml().encode())
    return Store(database)
