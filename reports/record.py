"""`python -m reports.record`: pack the finished runs of an experiment into small archives, for Git.

The runs are those of the arena or, in an experiment without an arena, those of the studies. A block
has the runs of all algorithms with one seed; in a tuning, those with one seed and one learning
rate. `--list-blocks` prints the parameters of each block. NAME-seedN.tar.xz has the files of the
jobs with seed N; in a tuning, of those that are finished. NAME-start.tar.xz has the files of the
jobs on which all blocks depend. Both are without models. The same files always make the same bytes.
To continue an experiment on another machine, unpack its archives there (`--unpack`): a job whose
small files exist is not repeated.

NAME-models.tar has the models from which runs start: the base model, and the model of the run that
`training.start` names. It is too large for Git; `dvc add` and `dvc push` store it.
"""

import json
import re
import sys
import tarfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rapid.arguments import Parser
from rapid.artifacts.files import BadInput
from rapid.artifacts.layout import ARENA, STUDIES, parse_folder
from rapid.artifacts.manifests import MANIFEST, Manifest, remove_path
from rapid.artifacts.runs import SNAPSHOTS
from rapid.config.jobs import Plan, build_plan
from rapid.config.params import Params, load_config_files
from rapid.config.specs import list_arena_runs, list_study_runs
from rapid.freshness import Examination, Job
from rapid.text import join_words

MODEL_FOLDERS = ("model", SNAPSHOTS)  # in the folder of a run


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = Parser(prog="python -m reports.record", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--configfile", nargs="+", required=True, metavar="FILE", help="the parameters")
    add("--archives", required=True, metavar="PATH/NAME", help="beginning of the archives' paths")
    add(
        "--pack",
        type=int,
        metavar="SEED",
        help="pack the finished runs with this seed, and delete their models",
    )
    add(
        "--list-blocks",
        nargs="*",
        type=int,
        metavar="SEED",
        help="print the seed of each block, and its parameters for `snakemake --config`; with "
        "SEED, only those of the blocks with these seeds",
    )
    add("--unrecorded", action="store_true", help="print which blocks are not recorded yet, if any")
    add("--unpack", action="store_true", help="extract all archives; files that exist are kept")
    options = parser.parse_args(arguments)
    try:
        plan = build_plan(load_config_files(options.configfile))
        if options.list_blocks is not None:
            blocks = list_blocks(plan.params, options.list_blocks)
            check_start_models(plan, [seed for seed, _ in blocks], options.archives)
            for seed, parameters in blocks:
                print(seed, parameters)
        if options.unpack:
            unpack_archives(options.archives)
        if options.pack is not None:
            pack_block(plan, options.pack, options.archives)
        if options.unrecorded and (
            block_seeds := list_unrecorded_blocks(options.configfile, options.archives)
        ):
            count = len(list_blocks(plan.params))
            seeds = join_words([*dict.fromkeys(map(str, block_seeds))])
            print(f"{len(block_seeds)} of {count} blocks are left; their seeds: {seeds}")
    except (BadInput, OSError, tarfile.TarError) as error:
        print(f"reports.record: {error}", file=sys.stderr)
        return 1
    return 0


def list_blocks(params: Params, seeds: Collection[int] = ()) -> list[tuple[int, str]]:
    """Return the seed of each block, and the parameters that select it, for `snakemake --config`.

    Args:
        seeds: those of the blocks to list; all if it is empty.

    Raises:
        BadInput: the experiment has no runs with one of the seeds.
    """
    all_seeds = list_seeds(params)
    if unknown := sorted({*seeds} - {*all_seeds}):
        raise BadInput(
            f"the experiment has no runs with seed {unknown[0]}; its seeds are "
            f"{join_words([*map(str, all_seeds)])}"
        )
    return [
        (seed, f"{section}={json.dumps(values)}")
        for seed in seeds or all_seeds
        for section, values in _list_selections(params, seed)
    ]


def _list_selections(params: Params, seed: int) -> list[tuple[str, dict]]:
    """Return, for each block of a seed, the section of the parameters that selects it."""
    if params.arena is None:
        return [("studies", {"seeds": [seed]})]
    if params.arena.tuning is None:
        return [("arena", {"fields": {name: {"seeds": [seed]} for name in params.arena.fields}})]
    rates_by_field = params.arena.tuning.rates
    selections = []
    for number in range(max(map(len, rates_by_field.values()))):
        rates = {  # a field with fewer rates than another repeats its last one
            name: [rates[min(number, len(rates) - 1)]] for name, rates in rates_by_field.items()
        }
        selections.append(("arena", {"tuning": {"seeds": [seed], "rates": rates}}))
    return selections


def pack_block(plan: Plan, seed: int, path_prefix: str) -> None:
    """Write the archive of a seed, and those of the jobs on which all blocks depend.

    In a tuning the archive has the finished jobs of the seed, and in other experiments all of them.
    The models of the packed runs are then deleted, except the one that other runs start from. The
    archive of models is not written if one of them is missing, as in a clone with recorded runs.

    Args:
        path_prefix: the beginning of the archives' paths, PATH/NAME.

    Raises:
        BadInput: a job that has to be packed is not finished, or no run has this seed.
    """
    starts, block = _list_jobs_of_seed(plan, seed)
    if block and plan.params.arena and plan.params.arena.tuning:
        block = [job for job in block if Path(job.manifest).is_file()] or block
    missing = [job.folder for job in [*starts, *block] if not Path(job.manifest).is_file()]
    if missing or not block:
        reason = f"{missing[0]} is not finished" if missing else "no run has this seed"
        raise BadInput(f"the block of seed {seed} cannot be packed: {reason}")
    _write_archive(Path(f"{path_prefix}-seed{seed}.tar.xz"), _list_files(block, want_models=False))
    _write_archive(Path(f"{path_prefix}-start.tar.xz"), _list_files(starts, want_models=False))
    models, model_files = Path(f"{path_prefix}-models.tar"), _list_files(starts, want_models=True)
    if not models.exists() and all(file.exists() for file in model_files):
        _write_archive(models, model_files)
    for job in block:
        if job.rule == "train":
            for folder in MODEL_FOLDERS:
                remove_path(Path(job.folder, folder))


def _list_jobs_of_seed(plan: Plan, seed: int) -> tuple[list[Job], list[Job]]:
    """Return the jobs on which all blocks depend, and the other jobs with a seed."""
    *jobs, _ = plan.list_with_inputs(ARENA if plan.params.arena else STUDIES)  # without the report
    inputs_of_training = {source for job in jobs if job.rule == "train" for source in job.inputs}
    block_seeds = set(map(str, list_seeds(plan.params)))
    block, starts = [], []
    for job in jobs:
        _, names = parse_folder(job.folder.removeprefix(plan.root))
        # A seed without a block may be that of the run that all others start from (`start_seed`).
        if names.get("seed") not in block_seeds or job in inputs_of_training:
            starts.append(job)
        elif names["seed"] == str(seed):
            block.append(job)
    return starts, block


def check_start_models(plan: Plan, seeds: Collection[int], path_prefix: str) -> None:
    """Check that runs of seeds that are not recorded find the models that they start from.

    A clone with the recorded results has the manifests of these models, and not their files.

    Raises:
        BadInput: a model is missing although its job is up to date.
    """
    unrecorded_seeds = {*seeds} & {*list_missing_seeds(plan.params, path_prefix)}
    starts = _list_jobs_of_seed(plan, min(unrecorded_seeds))[0] if unrecorded_seeds else []
    examination = Examination(hash_all=False)
    missing = {
        job: files
        for job in starts
        if Path(job.manifest).is_file() and not examination.explain(job)
        if (files := [file for file in _list_files([job], want_models=True) if not file.exists()])
    }
    if missing:
        [file, *_], manifests = next(iter(missing.values())), [job.manifest for job in missing]
        raise BadInput(
            f"{file} is missing, of a model that runs start from. Get {path_prefix}-models.tar "
            "from the machine that recorded the other seeds. Or delete "
            f"{join_words(manifests)}: these models are then made again, and recorded seeds too "
            "unless the models are the same bit for bit"
        )


def list_unrecorded_blocks(files: Sequence[str], path_prefix: str) -> list[int]:
    """Return the seed of each block that is not recorded yet.

    The archive of a seed has all its blocks, except in a tuning, where it grows with each of them.

    Args:
        files: the parameter files of the experiment.
        path_prefix: the beginning of the archives' paths, PATH/NAME.
    """
    params = load_config_files(files)
    missing = list_missing_seeds(params, path_prefix)
    block_seeds = []
    for seed in list_seeds(params):
        for section, values in _list_selections(params, seed):
            is_recorded = seed not in missing
            if is_recorded and params.arena and params.arena.tuning:
                selection = json.dumps({section: values})
                plan = build_plan(load_config_files([*files, selection]))
                *jobs, _ = plan.list_with_inputs(ARENA)
                is_recorded = all(Path(job.manifest).is_file() for job in jobs)
            if not is_recorded:
                block_seeds.append(seed)
    return block_seeds


def list_missing_seeds(params: Params, path_prefix: str) -> list[int]:
    """Return the seeds of the experiment that have no archive yet."""
    return [
        seed for seed in list_seeds(params) if not Path(f"{path_prefix}-seed{seed}.tar.xz").exists()
    ]


def list_seeds(params: Params) -> list[int]:
    """Return the seeds of the experiment's runs, except of the run from which others start."""
    runs = list_arena_runs(params) if params.arena else list_study_runs(params)
    return sorted({run.seed for run in runs if run.algorithm != params.training.start})


def unpack_archives(path_prefix: str, root: Path = Path()) -> None:
    """Extract all archives of an experiment; files that exist are kept."""
    pattern = re.compile(rf"{re.escape(path_prefix)}-((start|seed\d+)\.tar\.xz|models\.tar)")
    for path in sorted(Path(path_prefix).parent.glob("*.tar*")):
        if not pattern.fullmatch(str(path)):
            continue
        with tarfile.open(path) as archive:
            new = [member for member in archive if not (root / member.name).exists()]
            with TemporaryDirectory(dir=root, prefix=".unpack-") as folder:
                archive.extractall(folder, new, filter="data")
                # After an interruption no file is incomplete, and a manifest's files are all there.
                for member in sorted(new, key=lambda member: Path(member.name).name == MANIFEST):
                    (root / member.name).parent.mkdir(parents=True, exist_ok=True)
                    Path(folder, member.name).rename(root / member.name)


def _list_files(jobs: Iterable[Job], want_models: bool) -> list[Path]:
    """Return the model files that jobs wrote, or else the jobs' other outputs and manifests."""
    files = []
    for job in jobs:
        folders = [Path(job.folder, name) for name in MODEL_FOLDERS]
        if job.stage == "models":
            folders.append(Path(job.folder))
        for path in map(Path, Manifest.read(job.folder).outputs):
            if any(map(path.is_relative_to, folders)) == want_models:
                files.append(path)
        files += [] if want_models else [Path(job.manifest)]
    return files


def _write_archive(path: Path, files: Iterable[Path]) -> None:
    """Write an archive whose bytes depend only on the names and contents of the files."""

    def forget_origin(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o644
        return member

    scratch = path.with_name(f".{path.name}")
    with tarfile.open(scratch, "w:xz" if path.suffix == ".xz" else "w") as archive:
        for file in sorted(files):
            archive.add(file, filter=forget_origin)
    scratch.replace(path)


if __name__ == "__main__":
    sys.exit(main())
