"""What all commands share: exit codes, how an error is told, and how output ends when nobody reads it any more.

An error of any kind becomes one line on standard error and the exit code the help promises; a reader that closes the
pipe early ends the command quietly. This module knows click and the streams, and no command.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from neuron_ds import __version__
from neuron_ds.errors import NeuronDSError
from neuron_ds.records import printable

OK, NEGATIVE, UNUSABLE = 0, 1, 2
INTERRUPTED, PIPE_CLOSED = 130, 141
STDOUT = "standard output"

EXIT_CODES = """\b
Exit codes:
  0    done; the answer is yes, or good
  1    the answer is no: nothing to list, faults, problems
  2    not usable: wrong arguments, or what was named can't be read
  130  interrupted
  141  nobody reads the output any more"""


class Failure(click.ClickException):
    """An error already put into words: one line."""

    exit_code = UNUSABLE


class Finite(click.FloatRange):
    """A number from ``least`` to ``most``, never nan, which click's own range lets through."""

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Anything else is a usage error."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not self.least <= number <= self.most:
            self.fail(f"{value!r} is no finite number from {self.least:g} to {self.most:.15g}", param, ctx)
        return number


class Commands(click.Group):
    """A group whose ``main`` turns every outcome into one exit code, and never shows a traceback for an OS's error."""

    def main(  # type: ignore[override]  # click's has overloads for its two modes; this is one function
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> int:
        """Run one command. Exits, or returns the exit code without ``standalone_mode``."""
        code = self._run(list(sys.argv[1:] if args is None else args), prog_name or "neuron-ds", extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added: the one to begin with first."""
        return list(self.commands)

    def _run(self, args: list[str], prog_name: str, extra: dict[str, Any]) -> int:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            try:
                with self.make_context(prog_name, args, **extra) as context:
                    code = self.invoke(context)
                _flush(sys.stdout)
            except click.exceptions.Exit as e:
                _flush(sys.stdout)
                return e.exit_code
            except click.UsageError as e:
                where = e.ctx.command_path if e.ctx else prog_name
                return tell(f"{e.format_message().rstrip('.')}; {where} --help tells more", UNUSABLE)
            except click.ClickException as e:
                return tell(e.format_message(), e.exit_code)
            except BrokenPipeError:
                raise
            except NeuronDSError as e:
                return tell(str(e), UNUSABLE)
            except OSError as e:
                return tell(f"{_name_of(e)}{e.strerror or e}", UNUSABLE)
            except (KeyboardInterrupt, click.Abort):
                return INTERRUPTED
            return code if isinstance(code, int) else OK
        except BrokenPipeError:
            return PIPE_CLOSED
        finally:
            _silence_broken(sys.stdout)
            _silence_broken(sys.stderr)


def tell(message: str, code: int = OK) -> int:
    """One line of talk on standard error, whatever the message holds; gives ``code`` back."""
    click.echo(f"neuron-ds: {printable(message)}", err=True)
    return code


def put(line: str) -> None:
    """One line of data on standard output; what that can't take is an error with its name."""
    try:
        click.echo(line)
    except BrokenPipeError:
        raise
    except OSError as e:
        raise OSError(e.errno, e.strerror, STDOUT) from None


def print_json(value: object) -> None:
    """A value as JSON on standard output."""
    put(json.dumps(value, indent=2))


def _name_of(e: OSError) -> str:
    """What could not be used, for the front of a line; standard output is it where that can't be flushed either."""
    if isinstance(e.filename, (str, bytes)):
        return f"{os.fsdecode(e.filename)}: "
    try:
        _flush(sys.stdout)
    except OSError:
        return f"{STDOUT}: "
    return ""


def _flush(stream: TextIO | None) -> None:
    if stream is not None:
        stream.flush()


def _silence_broken(stream: TextIO | None) -> None:
    """If what is left in a stream can't be written, point it at nothing: the interpreter flushes it once more."""
    try:
        _flush(stream)
    except OSError:
        assert stream is not None
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, "-V", "--version", prog_name="neuron-ds")
@click.pass_context
def main(context: click.Context) -> int:
    """Watch what the processes on Neuron accelerators publish, and check and simulate it.

    Standard output is data, standard error is talk; --json gives the data to programs.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        context.color = False
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return UNUSABLE
    return OK
