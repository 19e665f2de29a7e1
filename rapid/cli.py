"""The `rapid` command: each stage of the pipeline as one subcommand that reads and writes files.

The workflow and users call these subcommands. `--spec` takes the parameters that decide a stage's
result, as JSON or as the path of a JSON file. The file may be the manifest.json of an earlier job:
`rapid train --spec runs/math/tiny-qwen2/pg/seed1/manifest.json ...` repeats the job.

Exit status: 0 if done, 1 if the command failed, 2 if arguments or parameters are invalid, 130 after
SIGINT, 143 after SIGTERM.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from tqdm import tqdm

from rapid import __version__
from rapid.algorithms import SFT
from rapid.arguments import Parser, build_positive_type
from rapid.artifacts.code import Spec
from rapid.artifacts.files import BadInput, read_json
from rapid.artifacts.runs import CHECKPOINTS, RunSummary, had_no_signal
from rapid.benchmarks import BENCHMARKS
from rapid.config import specs
from rapid.cost.options import add_plan_options
from rapid.errors.endings import run_command
from rapid.grading.permissions import GradingPermissions
from rapid.grading.verdicts import report_ungraded
from rapid.processes.fork_server import MAX_ATTEMPTS, RETRY_STATUS
from rapid.resources.leases import lock_folder
from rapid.text import escape_control_chars


def run(arguments: list[str]) -> int:
    """Run a `rapid` command in this process, and return its exit status."""
    args = _build_parser().parse_args(arguments)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    return run_command(args.command, lambda: args.run(args), getattr(args, "out", None))


class StageCommand(NamedTuple):
    """A stage as a subcommand, with `--spec` and an option for each path it reads or writes."""

    name: str
    function: str  # MODULE.FUNCTION in `rapid.stages`; takes the spec, then the paths in order
    spec_type: type[Spec]
    help: str
    paths: dict[str, str]  # help text by option; an option "NAME..." takes several paths


SPEC_HELP = "parameters of the job as JSON, or a JSON file, such as an earlier job's manifest.json"
OUT_PATH = {"out": "folder to write"}
DATA_PATHS = {"data...": "folders of the prepared benchmarks"}
STAGE_COMMANDS = (
    StageCommand(
        "prepare", "prepare.prepare", specs.PrepareSpec, "generate or load problems", OUT_PATH
    ),
    StageCommand(
        "tokenizer", "pretrain.make_tokenizer", specs.TokenizerSpec,
        "train the tokenizer of the embedded models", DATA_PATHS | OUT_PATH,
    ),
    StageCommand(
        "pretrain", "pretrain.pretrain", specs.PretrainSpec,
        "pre-train an embedded base model",
        DATA_PATHS | {"tokenizer": "folder of the tokenizer"} | OUT_PATH,
    ),
    StageCommand(
        "fetch", "fetch.fetch", specs.FetchSpec, "download or convert a published model", OUT_PATH
    ),
    StageCommand(
        "distill", "distill.distill", specs.DistillSpec,
        "sample completions from the teacher, and keep the correct ones",
        {"model": "folder of the teacher", "data": "train.jsonl"} | OUT_PATH,
    ),
    StageCommand(
        "demonstrate", "demonstrate.demonstrate", specs.DemonstrateSpec,
        "generate demonstrations, some with a deliberate mistake",
        {"data": "train.jsonl; test.jsonl must be in the same folder"} | OUT_PATH,
    ),
    StageCommand(
        "train", "train.train", specs.TrainSpec, "train one run of one algorithm",
        {"model": "folder of the model to train",
         "data": f"train.jsonl, or samples.jsonl for {SFT.name}"} | OUT_PATH,
    ),
    StageCommand(
        "evaluate", "evaluate.evaluate", specs.EvaluateSpec,
        "evaluate a model on a benchmark's test problems",
        {"model": "folder of the model", "data": "test.jsonl"} | OUT_PATH,
    ),
)  # fmt: skip


def _build_parser() -> Parser:
    parser = Parser(
        prog="rapid",
        description="The RAPID pipeline. Snakemake calls the commands from prepare to evaluate.",
    )
    parser.add_argument("--version", action="version", version=f"rapid {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    # Without a subcommand, `rapid` says what to do next (`rapid.stages.maintenance.advise`).
    parser.set_defaults(run=_maintain_jobs, command="advise", configfile=[Path("params.yaml")])
    for stage in STAGE_COMMANDS:
        run_stage = _run_train if stage.name == "train" else partial(_run_stage, stage)
        command = _add_command(commands, stage.name, stage.help, run_stage)
        command.add_argument("--spec", required=True, help=SPEC_HELP)
        for path, help_text in stage.paths.items():
            option, count = f"--{path.removesuffix('...')}", "+" if path.endswith("...") else None
            command.add_argument(option, required=True, type=Path, nargs=count, help=help_text)
    _add_ask(commands)
    _add_grade(commands)
    _add_maintenance(commands)
    _add_plan(commands)
    help_text = "show running, waiting, finished and failed jobs, and the progress of each run"
    watch = _add_command(commands, "watch", help_text, _run_watch)
    watch.add_argument("--once", action="store_true", help="print the present state and exit")
    fork_server = _add_command(
        commands, "fork-server", "run the workflow's fork server (internal)", _run_fork_server
    )
    fork_server.add_argument("socket", type=Path, help="path of the socket to listen on")
    fork_server.add_argument(
        "parent", type=int, help="PID of the parent; the server exits when the parent does"
    )
    _add_command(
        commands, "lean-setup", "install and check Lean, which grades proofs", _run_lean_setup
    )
    return parser


def _add_command(commands, name: str, help_text: str, function: Callable) -> Parser:
    """Add a command that calls a function with the parsed arguments."""
    command = commands.add_parser(name, help=help_text, description=help_text)
    command.set_defaults(run=function)
    return command


def _add_grade(commands) -> None:
    help_text = "grade completions, and print a JSON line with the verdict on each, in order"
    grade = _add_command(commands, "grade", help_text, _run_grade)
    grade.add_argument("--benchmark", required=True, choices=BENCHMARKS)
    for option, help_text in [
        ("--problems", "problems in their published form: JSON lines, plain or gzip"),
        ("--completions", 'JSON lines: {"id": ..., "completion": ...}'),
    ]:
        grade.add_argument(option, required=True, type=Path, help=help_text)
    for option, kind, help_text in [
        ("--workers", int, "number of graders in parallel (default: number of cores)"),
        ("--timeout", float, "time limit per verdict in seconds (default: the benchmark's)"),
    ]:
        grade.add_argument(option, type=build_positive_type(kind), help=help_text)
    for option, help_text in [
        ("--unsafe-sandbox", "run Python completions even if no sandbox works here"),
        ("--unsafe-lean", "run a native Lean even if no sandbox works here"),
    ]:
        grade.add_argument(option, action="store_true", help=help_text)


def _add_ask(commands) -> None:
    help_text = "sample completions of a prompt with the model in a folder, such as a run's model/"
    ask = _add_command(commands, "ask", help_text, _run_ask)
    ask.add_argument("--model", required=True, type=Path, help="folder of the model")
    ask.add_argument("--chat", action="store_true", help="use the model's own chat template")
    ask.add_argument("--sampler", choices=["transformers", "vllm"], default="transformers")
    for option, kind, default, help_text in [
        ("--samples", build_positive_type(int), 1, "completions to sample"),
        ("--max-tokens", build_positive_type(int), 256, "largest length of a completion"),
        ("--temperature", build_positive_type(float), 1.0, "sampling temperature"),
        ("--seed", int, 0, "seed of the sampling"),
    ]:
        help_text = f"{help_text} (default: {default:g})"
        ask.add_argument(option, type=kind, default=default, help=help_text)
    ask.add_argument("prompt", help="text that the model continues, or answers with --chat")


def _add_maintenance(commands) -> None:
    help_texts = {
        "verify": "compare every file with its digest, and list changed files, stale jobs and jobs "
        "that were not run; status 1 if there are changed files or stale jobs",
        "accept": "keep results that are stale only because of harmless changes of code",
        "reconcile": "list the same as verify, and make Snakemake repeat the stale jobs; status 0",
        "restore": "pull results that were pushed elsewhere (dvc pull), and verify them",
        "preflight": "check whether this machine has what the jobs need: GPUs, memory, disk space, "
        "models, data and graders; status 1 if not",
    }
    for name, help_text in help_texts.items():
        function = _run_preflight if name == "preflight" else _maintain_jobs
        command = _add_command(commands, name, help_text, function)
        _add_configfile(command)
        if name == "restore":
            help_text = "replace or delete local files, so that results are the pushed ones"
            command.add_argument("--force", action="store_true", help=help_text)
        if name == "preflight":
            command.add_argument("--config", help="all parameters as JSON, instead of --configfile")


def _add_plan(commands) -> None:
    help_text = "predict the pipeline's cost: time, GPU-hours, memory and disk of every job"
    command = _add_command(commands, "plan", help_text, _run_plan)
    _add_configfile(command)
    add_plan_options(command)


def _add_configfile(command: Parser) -> None:
    help_text = "parameter files, each over those before it; params.yaml, if any, is read first"
    default = [Path("params.yaml")]
    command.add_argument("--configfile", nargs="+", type=Path, default=default, help=help_text)


def _read_spec(text: str, spec_type: type[Spec]) -> Spec:
    """Parse `--spec`, which is JSON or a JSON file, and update its digest of the code."""
    try:
        document = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
        values = document.get("spec", document) if isinstance(document, dict) else document
        return spec_type.model_validate(values).with_code_digest()
    except OSError as error:
        raise BadInput(f"--spec: neither JSON nor a file: {text!r} ({error.strerror})") from None
    except ValidationError as error:
        raise BadInput(f"--spec: {error}") from None
    except ValueError as error:
        raise BadInput(f"--spec: not JSON: {error}") from None


def _read_spec_and_lease(args: argparse.Namespace, spec_type: type[Spec]) -> Spec:
    """Read `--spec`, check `--model`, and lease cores and GPUs, which downloads do not need."""
    from rapid.resources.requests import lease_resources

    spec = _read_spec(args.spec, spec_type)
    if hasattr(args, "model"):
        _check_model(args.model)
    if spec_type is not specs.FetchSpec:
        lease_resources(spec)
    return spec


def _check_model(folder: Path) -> None:
    """Raise BadInput if a model's folder is missing, and no summary.json of a run says why."""
    if folder.is_dir() or folder.with_name("summary.json").is_file():
        return
    parents = {folder.parent, Path("models")}
    models = sorted(str(file.parent) for path in parents for file in path.glob("*/config.json"))
    names = ", ".join(models) or "none"
    raise BadInput(f"--model {folder}: the folder does not exist; models here: {names}")


def _run_stage(stage: StageCommand, args: argparse.Namespace) -> None:
    spec = _read_spec_and_lease(args, stage.spec_type)
    module, _, function = stage.function.rpartition(".")
    stage_function = getattr(import_module(f"rapid.stages.{module}"), function)
    stage_function(spec, *(getattr(args, path.removesuffix("...")) for path in stage.paths))


def _run_train(args) -> int:
    spec = _read_spec(args.spec, specs.TrainSpec)
    paths = [str(path) for path in (args.model, args.data, args.out)]
    if spec.compute.nodes > 1:
        from rapid.processes.launch import launch_on_nodes

        launch_on_nodes(spec, paths)  # replaces this process, so it does not return
    with ExitStack() as resources:
        resources.enter_context(lock_folder(args.out / CHECKPOINTS))
        spec = _read_spec_and_lease(args, specs.TrainSpec)
        # The model's folder is missing if it belongs to a run that trained nothing. Then this run
        # trains nothing either.
        if specs.uses_vllm_server(spec) and args.model.is_dir():
            from rapid.vllm_server import run_server

            resources.enter_context(run_server(spec, args.model))
        if spec.compute.processes > 1:
            from rapid.processes.launch import launch_processes

            launch_processes(spec, paths)
            summary = read_json(args.out / "summary.json", RunSummary)
        else:
            from rapid.stages.train import train

            summary = train(spec, args.model, args.data, args.out)
    if summary.runtime:
        outcome = "" if summary.reward_last is None else f"reward {summary.reward_last:.1%}, "
        if had_no_signal(args.out):
            outcome += "in each group all rewards were equal, "
        print(f"{args.out}: {outcome}{summary.runtime.total:.1f} s of training", file=sys.stderr)
        report_ungraded(summary.reasons)
    else:
        print(f"{args.out}: not trained: {summary.note}", file=sys.stderr)
    # If other processes disturbed the runtime, the fork server runs the job again.
    return RETRY_STATUS if summary.disturbed and summary.attempt < MAX_ATTEMPTS else 0


def _run_ask(args) -> None:
    from rapid.sampling import sample

    _check_model(args.model)
    if not (args.model / "config.json").is_file():
        raise BadInput(f"--model {args.model}: not a model's folder: it has no config.json")
    completions = sample(
        args.sampler,
        args.model,
        [args.prompt] * args.samples,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_p=1.0,
        seed=args.seed,
        chat=args.chat,
    )
    text = "\n\n".join(completion.text for completion in completions)
    print(escape_control_chars(text) if sys.stdout.isatty() else text)


def _run_grade(args) -> int:
    from rapid.benchmarks.published import read_problems
    from rapid.resources.leases import list_usable_cores
    from rapid.stages.grade import grade, read_submissions, report_flaws

    benchmark = BENCHMARKS[args.benchmark]
    for option, path in [("--problems", args.problems), ("--completions", args.completions)]:
        if path.is_dir():
            raise BadInput(f"{option} {path}: must be a file, but is a folder")
    problems = read_problems(args.problems, benchmark)
    submissions = read_submissions(args.completions, problems)
    if not submissions:
        print(f"rapid grade: {args.completions}: contains 0 completions", file=sys.stderr)
    if missing := benchmark.explain_unavailable():
        print(f"rapid grade: {missing}", file=sys.stderr)
        return 1
    with tqdm(total=len(submissions), desc="grading", unit="completion") as bar:
        result = grade(
            benchmark,
            problems,
            submissions,
            workers=args.workers or len(list_usable_cores()),
            timeout=args.timeout or benchmark.default_timeout,
            permissions=GradingPermissions(
                unsafe_sandbox=args.unsafe_sandbox, unsafe_lean=args.unsafe_lean
            ),
            progress=bar.update,
        )
    for submission, verdict in zip(submissions, result.verdicts, strict=True):
        print(json.dumps({"id": submission.id, **verdict.model_dump()}))
    report_ungraded(Counter(verdict.reason for verdict in result.verdicts))
    report_flaws(problems, submissions)
    if reasons := result.bad_problems.values():
        count = f"{len(reasons)} of {len(problems)}"
        heading = f"{count} problems are faulty, so their completions cannot be graded:"
        raise BadInput("\n  ".join([heading, *reasons]))
    return 0


def _maintain_jobs(args) -> int:
    """Call the function of `rapid.stages.maintenance` that has the command's name."""
    from rapid.stages import maintenance

    options = {"force": args.force} if args.command == "restore" else {}
    return getattr(maintenance, args.command)(args.configfile, **options)


def _run_plan(args) -> None:
    from rapid.cost.command import plan

    print(plan(args))


def _run_preflight(args) -> int:
    from rapid.config.params import load_config_files, load_files
    from rapid.preflight import print_checks, run_checks

    params = load_files(args.config) if args.config else load_config_files(args.configfile)
    missing = print_checks(run_checks(params))
    print(f"{len(missing)} missing" if missing else "nothing is missing")
    return 1 if missing else 0


def _run_watch(args) -> int:
    from rapid.console.watch import watch_workflow

    return watch_workflow(once=args.once or not sys.stdout.isatty())


def _run_fork_server(args) -> None:
    from rapid.processes.fork_server import serve_requests
    from rapid.stages.warm_up import lend_graders, warm_up

    serve_requests(args.socket, args.parent, warm_up, run, lend_graders)


def _run_lean_setup(args) -> int:
    from rapid.freshness import discard_unavailable_manifests
    from rapid.grading.lean.selfcheck import set_up_lean

    status = set_up_lean()
    if status == 0 and (folders := discard_unavailable_manifests()):
        print(f"{len(folders)} jobs had no grader before: the next `snakemake` runs them again")
    return status
