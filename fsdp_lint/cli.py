"""The command `fsdp-lint`: options in, exit code out."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from fsdp_lint import __version__

# `--help` and `--version` need nothing but click; each command imports what it needs.
if TYPE_CHECKING:
    from fsdp_lint.cache import Cache
    from fsdp_lint.findings import LocatedFix, Report
    from fsdp_lint.registry import RegisteredRule
    from fsdp_lint.settings import Settings

FOUND, FAILED, INTERRUPTED, TERMINATED = 1, 2, 130, 143
_MODES = click.Choice(["nccl", "simulate", "shared", "cpu"])
_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_FORMATS = click.Choice(["text", "concise", "json", "github"])


@dataclasses.dataclass(frozen=True)
class _Shown:
    """How findings are to be shown: `given` are texts that are not on disk, `fixes` asks for the diff of each fix."""

    given: Mapping[str, str]
    unsafe: bool
    fixes: bool
    quiet: bool


class _Failure(Exception):
    """The job cannot be done; the message is one line."""


class _ReaderLeft(Exception):
    """Whoever read the output has closed it."""


class _Commands(click.Group):
    """`check` is meant where no command is named, and its options are in the help of the whole."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h", "--version", "-V")):
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [
            param.get_help_record(ctx)
            for param in (*check.params, *self.get_params(ctx))
            if isinstance(param, click.Option)
        ]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record])
        self.format_commands(ctx, formatter)


def _listed(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.strip() for each in value for word in each.split(",") if word.strip())


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    options_metavar="[OPTIONS]",
    subcommand_metavar="[PATHS...]",
    epilog="Exit code: 0 nothing found, 1 findings above INFO, 2 the job could not be done. "
    "A folder named like a command is reached as ./rules.",
)
@click.version_option(__version__, "-V", "--version", prog_name="fsdp-lint", message="%(prog)s %(version)s")
def cli() -> None:
    """Find the mistakes in PyTorch FSDP code that raise no error, in files and folders (default: the current one)."""


@cli.command(short_help="Look for mistakes (meant where no command is named).")
@click.argument("paths", nargs=-1)
@click.option("--select", multiple=True, callback=_listed, metavar="RULES", help="Run these rules only.")
@click.option("--ignore", multiple=True, callback=_listed, metavar="RULES", help="Do not run these rules.")
@click.option("--extend-select", multiple=True, callback=_listed, metavar="RULES", help="Run these rules besides.")
@click.option("--fix", "mend", is_flag=True, help="Apply the safe fixes.")
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="With --fix or --diff: those that may change more, too.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--fix-only", is_flag=True, help="Apply fixes (as --fix) and do not list what is left.")
@click.option("--show-fixes", is_flag=True, help="Show the change of each fix and suggestion, and list those applied.")
@click.option("--output-format", type=_FORMATS, default="text", show_default=True, help="How findings are written.")
@click.option("--statistics", is_flag=True, help="Count the findings of each rule instead of listing them.")
@click.option("-q", "--quiet", is_flag=True, help="Write findings only, no closing line.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Take the settings from this file.")
@click.option("--force-exclude", is_flag=True, help="Leave out what `exclude` names even if it is given as a path.")
@click.option("--no-cache", is_flag=True, help="Look at everything anew, and keep nothing for the next run.")
@click.option("--stdin-filename", metavar="FILE", help="The name of what is read where the path is `-`.")
def check(
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
    mend: bool,
    unsafe: bool,
    diff: bool,
    fix_only: bool,
    show_fixes: bool,
    output_format: str,
    statistics: bool,
    quiet: bool,
    exit_zero: bool,
    config: Path | None,
    force_exclude: bool,
    no_cache: bool,
    stdin_filename: str | None,
) -> int:
    """Look for mistakes in files and folders; `-` reads one file from standard input."""
    mend = mend or (fix_only and not diff)
    stdin = _stdin(paths, stdin_filename, mend or diff)
    if mend and diff:
        raise click.UsageError("--diff shows what --fix would do: give one of them.")
    # Trees and traces live until the process ends: looking through them once, at the end, took a twentieth of the time.
    gc.disable()
    from fsdp_lint import engine
    from fsdp_lint.findings import Coverage, Report, Severity
    from fsdp_lint.settings import load

    where = [stdin[0]] if stdin else [Path(path) for path in paths or (".",)]
    settings = load(_above(where), config, select=select, ignore=ignore, extend_select=extend_select)
    if force_exclude:
        from fsdp_lint.source.discover import not_excluded

        where = not_excluded(where, settings.root, settings.exclude)
        stdin = stdin if where else None
    if diff:
        return _show_changes(where, settings, unsafe, exit_zero)
    if mend:
        report = _mend(where, settings, unsafe, show_fixes, quiet or output_format not in ("text", "concise"))
    elif stdin:
        report = engine.analyse((), settings, stdin)
    else:
        known = None if no_cache else _cache()
        report = engine.analyse(where, settings, cache=known) if where else Report((), (), Coverage(0, 0, 0, 0))
        report = _with_unfinished(report, settings)
    _complain(report.errors)
    if fix_only:
        return FAILED if report.errors else 0
    given = {str(stdin[0]): stdin[1]} if stdin else {}
    _echo(_rendered(report, output_format, _Shown(given, unsafe, show_fixes, quiet), statistics))
    counts = any(finding.severity is not Severity.INFO for finding in report.findings)
    return FAILED if report.errors else FOUND if counts and not exit_zero else 0


def _with_unfinished(report: Report, settings: Settings) -> Report:
    from fsdp_lint.fix import writing

    said = writing.unfinished(settings.root)
    return dataclasses.replace(report, errors=(said, *report.errors)) if said else report


def _show_changes(paths: Sequence[Path], settings: Settings, unsafe: bool, exit_zero: bool) -> int:
    from fsdp_lint import engine
    from fsdp_lint.report import diff

    result = engine.fix_files(paths, settings, unsafe)
    errors = (*result.report.errors, *result.errors)
    _complain(errors)
    _echo(diff.unified(result.changed))
    return FAILED if errors else FOUND if result.changed and not exit_zero else 0


def _mend(paths: Sequence[Path], settings: Settings, unsafe: bool, show: bool, quiet: bool) -> Report:
    """Fixes the files; what is left, and what went wrong."""
    import dataclasses

    from fsdp_lint import engine
    from fsdp_lint.fix import writing
    from fsdp_lint.report.lines import applied

    cut_off = writing.resume(settings.root)
    result = engine.fix_files(paths, settings, unsafe)
    written, failed = writing.write_all(result.changed, settings.root, result.together)
    if not quiet:
        # What could not be written is not mended.
        lost = {str(path) for path in result.changed} - {str(path) for path in written}
        kept = [each for each in result.applied if each.fix and not lost & {e.place.path for e in each.fix.edits}]
        _echo(applied(kept, result.fixed - (len(result.applied) - len(kept)), len(written), show))
    return dataclasses.replace(result.report, errors=(*cut_off, *result.report.errors, *result.errors, *failed))


@cli.command(short_help="List the rules.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def rules(output_format: str) -> int:
    """List the rules: code, name, severity, the kinds of fix that they offer, and what they find."""
    from fsdp_lint import registry

    known = registry.rules()
    if output_format == "json":
        import json

        _echo(json.dumps([_facts(each) for each in known], indent=2) + "\n")
        return 0
    rows = [("CODE", "NAME", "SEVERITY", "FIX", "WHAT IT FINDS")]
    rows += [
        (each.rule.code, each.name, each.rule.severity.value, _fixes(each) or "-", _summary(each)) for each in known
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
        _echo("  ".join([*cells, row[4]]) + "\n")
    return 0


@cli.command(short_help="Explain one rule.")
@click.argument("rule")
def explain(rule: str) -> int:
    """Explain the rule of this code or name: what it finds, why it is wrong, how to mend it, when to leave it."""
    from fsdp_lint import docs, examples, registry

    _echo(docs.page(registry.find(registry.rules(), rule), examples.folder(), docs.measured()))
    return 0


@cli.command(short_help="Run a program before and after the fix, and prove it.")
@click.argument("program", nargs=-1, required=False, type=click.UNPROCESSED, metavar="SCRIPT [-- ARGUMENTS...]")
@click.option("-m", "module", metavar="MODULE", help="Run this module instead of a script.")
@click.option("--mode", "modes", multiple=True, type=_MODES, help="How ranks are had; may be given twice.")
@click.option("--ranks", type=click.IntRange(1), metavar="N", help="How many ranks.  [default: GPUs, 8 or 2]")
@click.option("--steps", type=click.IntRange(1), default=6, show_default=True, help="Optimizer steps before the end.")
@click.option("--fixes", type=click.Choice(["safe", "all"]), default="all", show_default=True, help="Fixes to prove.")
@click.option("--after", metavar="FILE|DIR|REV", help="Prove this fixed script, folder or git revision instead.")
@click.option("--timeout", type=click.FloatRange(1), default=600.0, show_default=True, help="Seconds for each run.")
@click.option("--patience", type=click.FloatRange(1), default=30.0, show_default=True, help="Seconds for a collective.")
@click.option("--expect", multiple=True, metavar="TEXT", help="What must hold: 'peak<=40GiB', 'saving>=30%'.")
@click.option("--output", type=_FILE, metavar="FILE", help="Write JSON there.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write a page with pictures there (extra: html).")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write Markdown there.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Take the settings from this file.")
@click.option("--rule", "rules_", multiple=True, callback=_listed, metavar="RULE", help="Prove a rule here, or `all`.")
@click.option("--record", type=_FOLDER, metavar="DIR", help="With --rule: keep what was measured in this folder.")
def verify(
    program: tuple[str, ...],
    module: str | None,
    modes: tuple[str, ...],
    ranks: int | None,
    steps: int,
    fixes: str,
    after: str | None,
    timeout: float,
    patience: float,
    expect: tuple[str, ...],
    output: Path | None,
    html: Path | None,
    markdown: Path | None,
    config: Path | None,
    rules_: tuple[str, ...],
    record: Path | None,
) -> int:
    """Run a training program as it is and with its mistakes fixed, both under instruments, and show what changed.

    Modes: nccl (one rank a GPU), simulate (one rank of many, on one GPU or none: memory), shared (ranks that share one
    GPU: training), cpu (gloo ranks). Without --mode: nccl on several GPUs, simulate and shared on one, cpu on none.
    Exit code: 0 each mistake that was seen is gone and what is expected holds, 1 not so, 2 it could not be run."""
    if rules_ and (program or module or after or expect or output or html or markdown):
        raise click.UsageError("--rule runs programs of its own, and takes no script, fix, expectation or file.")
    if rules_:
        return _verify_rules(rules_, modes, ranks, steps, (timeout, patience), record)
    if record is not None:
        raise click.UsageError("--record keeps what --rule measures.")
    if not program and module is None:
        raise click.UsageError("Name a script, or a module with -m.")
    from fsdp_lint.settings import load
    from fsdp_lint.verify import markdown as in_markdown
    from fsdp_lint.verify import page, progress, proof, report
    from fsdp_lint.verify.expectations import Expectation
    from fsdp_lint.verify.plan import Target
    from fsdp_lint.verify.processes import Terminated

    # What cannot be written or drawn is better said before the run than after it.
    for path in (output, html, markdown):
        if path is not None and not path.absolute().parent.is_dir():
            raise _Failure(f"{path}: no such folder")
    if html is not None:
        page.pictures()
    target = Target(module=module, arguments=program) if module else Target(program[0], "", program[1:])
    entry = proof.find_entry(target)
    expectations = tuple(Expectation.parse(each) for each in expect)
    mode, beside = (modes[0], modes[1:]) if modes else (None, ())
    wish = proof.Wish(target, mode, ranks, steps, timeout, patience, fixes, after, expectations, beside)
    try:
        proved = proof.prove(wish, load(Path(entry).parent, config), progress.shown())
    except Terminated:
        return TERMINATED
    _complain(proved.errors)
    if proved.ran:
        _echo(report.to_text(proved))
    else:
        _echo(report.failure(proved))
        _complain([each.obstacle for each in (proved, *proved.beside)])
    unwritten = []
    for file, made in ((output, report.to_json), (markdown, in_markdown.to_markdown), (html, page.to_html)):
        try:
            if file is not None:
                file.write_text(made(proved), encoding="utf-8")
        except OSError as error:
            unwritten.append(f"{file}: cannot be written: {error.strerror or error}")
    _complain(unwritten)
    return FAILED if proved.errors or unwritten or not proved.ran else 0 if proved.holds else FOUND


def _verify_rules(
    words: tuple[str, ...],
    modes: tuple[str, ...],
    ranks: int | None,
    steps: int,
    limits: tuple[float, float],
    folder: Path | None,
) -> int:
    """Proves these rules, or with "all" each one that a run can show; what cannot be run has a line."""
    from fsdp_lint import records, registry
    from fsdp_lint.findings import Severity
    from fsdp_lint.verify import by_rule, progress
    from fsdp_lint.verify.plan import CannotRun, Target
    from fsdp_lint.verify.processes import Terminated
    from fsdp_lint.verify.proof import Wish

    known = registry.rules()
    chosen = known if words == ("all",) else [registry.find(known, word) for word in words]
    mode, beside = (modes[0], modes[1:]) if modes else (None, ())
    wish = Wish(Target(), mode, ranks, steps, *limits, beside=beside)
    code = 0
    for each in chosen:
        try:
            advice = each.rule.severity is Severity.INFO
            rule = by_rule.Proved(each.name, each.rule.code, advice)
            measured = by_rule.prove_rule(rule, wish, progress.shown())
        except CannotRun as error:
            _complain([str(error)])
            code = code if words == ("all",) else FAILED
            continue
        except Terminated:
            return TERMINATED
        for one in measured:
            _echo(records.as_text(one))
            try:
                if folder is not None:
                    one.save(folder)
            except OSError as error:
                _complain([f"{folder}: nothing can be written there: {error.strerror or error}"])
                return FAILED
        code = max(code, FOUND * (not any(one.holds for one in measured)))
    return code


@cli.command(short_help="Remove what earlier runs have kept.")
def clean() -> int:
    """Remove what earlier runs have kept: the next one looks at everything anew."""
    cache = _cache()
    freed = cache.clean()
    _echo(f"Removed {freed / 1e6:.1f} MB from {cache.folder}.\n")
    return 0


def _cache() -> Cache:
    from fsdp_lint import cache

    return cache.Cache(cache.default_folder())


def _stdin(paths: tuple[str, ...], name: str | None, changes: bool) -> tuple[Path, str] | None:
    """Path and text of what comes from standard input, if that is asked for."""
    if "-" not in paths:
        if name is not None:
            raise click.UsageError("--stdin-filename needs the path `-`.")
        return None
    if len(paths) > 1:
        raise click.UsageError("`-` stands alone: one file comes from standard input.")
    if changes:
        raise click.UsageError("--fix and --diff work on files, not on standard input.")
    from fsdp_lint.source.text import Unreadable, decode

    path = Path(os.path.abspath(name or "stdin.py"))
    try:
        return path, decode(sys.stdin.buffer.read())
    except Unreadable as error:
        raise _Failure(f"{path}: {error}") from None


def _above(paths: Iterable[Path]) -> Path:
    """The folder that holds all of the paths: where the search for the configuration begins."""
    absolute = [os.path.abspath(path) for path in paths]
    try:
        return Path(os.path.commonpath(absolute))
    except ValueError:  # several drives
        return Path(absolute[0])


def _rendered(report: Report, output_format: str, shown: _Shown, statistics: bool) -> str:
    if statistics:
        return _statistics(report, output_format)
    if output_format == "json":
        from fsdp_lint.report import json

        return json.render(report)
    if output_format == "github":
        from fsdp_lint.report import github

        return github.render(report, shown.quiet)
    if output_format == "concise":
        from fsdp_lint.report import concise

        return concise.render(report, shown.quiet, shown.unsafe)
    from fsdp_lint.report import text
    from fsdp_lint.report.lines import Lines

    return text.render(
        report, Lines(_programs(report, shown.given)), shown.quiet, shown.unsafe, _changes(report, shown)
    )


def _programs(report: Report, given: Mapping[str, str]) -> dict[str, str]:
    """The texts that are not on disk as they were analysed: those `given`, and the programs in notebooks."""
    from fsdp_lint.source.discover import NOTEBOOK

    places = [place for each in report.findings for place in (each.place, *(one.place for one in each.related))]
    programs = dict(given)
    for name in {place.path for place in places if place.path.endswith(NOTEBOOK)}:
        from fsdp_lint.source.notebook import program
        from fsdp_lint.source.text import Unreadable, decode

        try:
            programs[name] = program(Path(name), given[name] if name in given else decode(Path(name).read_bytes()))
        except (OSError, Unreadable):
            programs[name] = ""
    return programs


def _changes(report: Report, shown: _Shown) -> dict[LocatedFix, str]:
    """The diff of each fix, where they are asked for."""
    if not shown.fixes:
        return {}
    from fsdp_lint.fix import apply
    from fsdp_lint.report import diff
    from fsdp_lint.source.text import decode

    found = {}
    for fix in {finding.fix for finding in report.findings if finding.fix is not None}:
        paths = {edit.place.path for edit in fix.edits}
        texts = {
            Path(path): shown.given[path] if path in shown.given else decode(Path(path).read_bytes()) for path in paths
        }
        found[fix] = diff.unified(apply.preview(fix, texts))
    return found


def _statistics(report: Report, output_format: str) -> str:
    from collections import Counter

    counts = Counter((finding.code, finding.name) for finding in report.findings)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if output_format == "json":
        import json

        return (
            json.dumps([{"code": code, "name": name, "count": count} for (code, name), count in ranked], indent=2)
            + "\n"
        )
    return "".join(f"{count:>6}  {code}  {name}\n" for (code, name), count in ranked)


def _summary(each: RegisteredRule) -> str:
    return each.summary if each.rule.on_by_default else f"{each.summary} (off by default)"


def _fixes(each: RegisteredRule) -> str:
    return ", ".join(sorted(kind.value for kind in each.rule.fixes))


def _facts(each: RegisteredRule) -> dict[str, object]:
    return {
        "code": each.rule.code,
        "name": each.name,
        "severity": each.rule.severity.value,
        "fixes": sorted(kind.value for kind in each.rule.fixes),
        "on_by_default": each.rule.on_by_default,
        "since": each.rule.since,
        "summary": each.summary,
        "url": each.url,
    }


def _echo(text: str) -> None:
    """To standard output; colours only on a terminal, and never with NO_COLOR (https://no-color.org)."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    try:
        click.echo(text, nl=False, color=False if plain else None)
        sys.stdout.flush()
    except BrokenPipeError:
        # Not an OSError from here on: click would make it exit code 1, which means findings.
        raise _ReaderLeft from None


def _complain(errors: Iterable[str]) -> None:
    for error in errors:
        line = " ".join(error.split("\n"))
        click.echo("fsdp-lint: " + os.fsencode(line).decode("utf-8", "replace"), err=True)


def _run() -> int:
    try:
        # click hands the code of --help and --version through, and what a command returns.
        return int(cli.main(prog_name="fsdp-lint", standalone_mode=False) or 0)
    except click.UsageError as error:
        _complain([f"{error.format_message()} (fsdp-lint --help tells more)"])
    except click.ClickException as error:
        _complain([error.format_message()])
    except Exception as error:
        if not _is_expected(error):
            raise
        _complain([str(error)])
    return FAILED


def _is_expected(error: Exception) -> bool:
    """Whether the message is meant for users: the mistake is not ours."""
    from fsdp_lint.registry import RegistryError
    from fsdp_lint.settings import SettingsError
    from fsdp_lint.verify.plan import CannotRun

    return isinstance(error, SettingsError | RegistryError | CannotRun | _Failure)


def main() -> NoReturn:
    """Run the command and leave with its exit code; whatever happens, users see a line and no traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character is no reason to show nothing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run()
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except _ReaderLeft:
        # What is still in the buffer goes nowhere, also when Python shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except Exception as error:
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())
        at = f"{os.path.basename(last.filename)}:{last.lineno}"
        _complain([f"a mistake of fsdp-lint itself, please report it: {type(error).__name__}: {said} ({at})"])
        code = FAILED
    # What is left goes with the process; Python would free it piece by piece, an eighth of the time of a large run.
    gc.freeze()
    sys.exit(code)
