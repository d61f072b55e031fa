"""Programs that use the mock devices as real ones: how each is built, run and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from real_stack import wheels
from real_stack.root import Result, Root, Unavailable

SOURCES = Path(__file__).resolve().parents[2] / "tests/real"
RIGHT, WRONG = 0, 1
# Every case is run twice: as it is, and with nothing copied or filled, when every check must go red.
CONTROLS: tuple[tuple[int, tuple[str, ...]], ...] = ((RIGHT, ()), (WRONG, ("--sabotage",)))
CFLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wshadow")


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a client and the exit code that it must have."""

    client: str
    name: str
    command: tuple[str, ...]
    code: int = RIGHT
    env: Mapping[str, str] = field(default_factory=dict)
    limit: float = 60.0
    """Seconds."""

    @property
    def is_control(self) -> bool:
        """Whether it is a negative control: nothing is copied, so every check must go red."""
        return self.code == WRONG


@dataclass(frozen=True, slots=True)
class Client:
    """A program, how it gets into the root, and its runs."""

    name: str
    build: Callable[[Root], None]
    cases: tuple[Case, ...]


def compile_in(root: Root, name: str, sources: Sequence[str], flags: Sequence[str]) -> None:
    """Compile SOURCES of tests/real in the root to /opt/ze-ipc-tests/NAME."""
    inside = root.with_binds((SOURCES, "/mnt/real"))
    (root.path / "opt/ze-ipc-tests").mkdir(parents=True, exist_ok=True)
    files = [f"/mnt/real/{path.relative_to(SOURCES)}" for s in sources for path in _glob(s)]
    command = ["gcc", *CFLAGS, "-o", f"/opt/ze-ipc-tests/{name}", *files, *flags]
    result = inside.run(command, limit=120)
    if not result.ok:
        raise Unavailable(f"{name} does not compile in the root:\n{result.output}")


def run_case(root: Root, case: Case, env: Mapping[str, str]) -> tuple[bool, Result]:
    """Run a case on the devices that ENV gives; whether it did what it must."""
    result = root.run(case.command, limit=case.limit, env={**env, **case.env})
    return result.code == case.code and not result.timed_out, result


def _glob(pattern: str) -> list[Path]:
    found = sorted(SOURCES.glob(pattern))
    if not found:
        raise FileNotFoundError(f"no {pattern} in {SOURCES}")
    return found


def _neo_cases() -> tuple[Case, ...]:
    program = "/opt/ze-ipc-tests/neo"
    cases = []
    for name in ("devices", "usm", "copy", "fill", "vmm", "peer"):
        for code, extra in CONTROLS:
            env = {"NEO_DEVICES": "2"}
            label = f"{name}, sabotaged" if code else name
            cases.append(Case("neo", label, (program, name, *extra), code, env))
    # The driver has two ways to hand a descriptor over; which one it takes hangs on prctl(2).
    transports = {"socket": {}, "pidfd": {"ZE_IPC_MOCK_PTRACER": "1"}}
    for name in ("ipc-physical", "ipc-mapped", "ipc-usm", "ipc-peer"):
        for transport, switch in transports.items():
            for code, extra in CONTROLS:
                env = {"NEO_TRANSPORT": transport, **switch}
                label = f"{name} by {transport}" + (", sabotaged" if code else "")
                cases.append(Case("neo", label, (program, name, *extra), code, env))
    return tuple(cases)


def _build_neo(root: Root) -> None:
    compile_in(root, "neo", ["neo/*.c"], ["-lze_loader"])


def _build_umf(root: Root) -> None:
    place = wheels.install(root)
    sources = ["umf/umf.c", "neo/gpu.c", "neo/pattern.c", "neo/child.c"]
    flags = [f"-I{place}/include", f"-L{place}/lib", f"-Wl,-rpath,{place}/lib"]
    compile_in(root, "umf", sources, [*flags, "-lumf", "-lze_loader"])


def _umf_cases() -> tuple[Case, ...]:
    program = "/opt/ze-ipc-tests/umf"
    return tuple(
        Case("umf", pool + (", sabotaged" if code else ""), (program, pool, *extra), code)
        for pool in ("proxy", "disjoint")
        for code, extra in CONTROLS
    )


CLIENTS = {
    client.name: client
    for client in (
        Client("neo", _build_neo, _neo_cases()),
        Client("umf", _build_umf, _umf_cases()),
    )
}
