"""Programs that use the mock devices as real ones: how each is built, run and judged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from real_stack import package, wheels
from real_stack.root import Broken, Result, Root

SOURCES = Path(__file__).resolve().parents[2] / "tests/real"
# Where this checkout's programs go in the root, which other checkouts use, too.
PROGRAMS = f"/opt/ze-ipc-tests/{sha256(str(SOURCES).encode()).hexdigest()[:8]}"
# Exit codes. WRONG is none that a shell or an uncaught exception ends with.
RIGHT, WRONG = 0, 3
# Every case runs twice: as it is, and with nothing copied or filled, when all checks must go red.
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
    profiles: tuple[str, ...] = ("bmg", "lnl")
    """The mock's profiles on which the client's driver does it without a kernel."""


@dataclass(frozen=True, slots=True)
class Client:
    """A program, how it gets into the root, and its runs."""

    name: str
    build: Callable[[Root], None]
    cases: tuple[Case, ...]


def compile_in(root: Root, name: str, sources: Sequence[str], flags: Sequence[str]) -> None:
    """Compile SOURCES of tests/real in the root to PROGRAMS/NAME."""
    inside = root.with_binds((SOURCES, "/mnt/real"))
    place = _place(root)
    files = [f"/mnt/real/{path.relative_to(SOURCES)}" for s in sources for path in _glob(s)]
    # Aside first: another run may be using the program.
    aside = f"{name}.{os.getpid()}"
    command = ["gcc", *CFLAGS, "-o", f"{PROGRAMS}/{aside}", *files, *flags]
    result = inside.run(command, limit=120)
    if not result.ok:
        raise Broken(f"{name} does not compile in the root:\n{result.output}")
    (place / aside).replace(place / name)


def run_case(root: Root, case: Case, env: Mapping[str, str]) -> tuple[bool, Result]:
    """Run a case on the devices that ENV gives; whether it did what it must."""
    result = root.run(case.command, limit=case.limit, env={**env, **case.env})
    return result.code == case.code and not result.timed_out, result


def _place(root: Root) -> Path:
    place = root.path / PROGRAMS.lstrip("/")
    place.mkdir(parents=True, exist_ok=True)
    return place


def _glob(pattern: str) -> list[Path]:
    found = sorted(SOURCES.glob(pattern))
    if not found:
        raise FileNotFoundError(f"no {pattern} in {SOURCES}")
    return found


def _neo_cases() -> tuple[Case, ...]:
    program = f"{PROGRAMS}/neo"
    cases = []
    for name in ("devices", "usm", "copy", "fill", "vmm", "peer"):
        for code, extra in CONTROLS:
            cases.append(Case("neo", _label(name, code), (program, name, *extra), code))
    # The driver has two ways to hand a descriptor over. It asks Yama for the first, by prctl(2),
    # and takes the second on kernels without Yama.
    transports = {"pidfd": {"ZE_IPC_MOCK_PTRACER": "1"}}
    if not Path("/proc/sys/kernel/yama").exists():
        transports["socket"] = {}
    for name in ("ipc-physical", "ipc-mapped", "ipc-usm", "ipc-peer"):
        for transport, switch in transports.items():
            for code, extra in CONTROLS:
                env = {"NEO_TRANSPORT": transport, **switch}
                label = _label(f"{name} by {transport}", code)
                cases.append(Case("neo", label, (program, name, *extra), code, env))
    return tuple(cases)


def _build_neo(root: Root) -> None:
    compile_in(root, "neo", ["neo/*.c", "common/*.c"], ["-lze_loader"])


def _build_umf(root: Root) -> None:
    place = wheels.install(root)
    sources = ["umf/umf.c", "neo/gpu.c", "common/*.c"]
    flags = [f"-I{place}/include", f"-L{place}/lib", f"-Wl,-rpath,{place}/lib"]
    compile_in(root, "umf", sources, [*flags, "-lumf", "-lze_loader"])


def _umf_cases() -> tuple[Case, ...]:
    program = f"{PROGRAMS}/umf"
    return tuple(
        Case("umf", _label(pool, code), (program, pool, *extra), code)
        for pool in ("proxy", "disjoint")
        for code, extra in CONTROLS
    )


def _build_ur(root: Root) -> None:
    place = wheels.install(root)
    flags = [f"-I{place}/include/unified-runtime", f"-L{place}/lib", f"-Wl,-rpath,{place}/lib"]
    compile_in(root, "ur", ["ur/ur.c", "common/*.c"], [*flags, "-lur_loader"])


# Without them the adapters send copies and fills to the compute engine, which has no kernels here.
ADAPTERS: dict[str, dict[str, str]] = {
    "V1": {
        "UR_LOADER_USE_LEVEL_ZERO_V2": "0",
        "UR_L0_USE_COPY_ENGINE_FOR_FILL": "1",
        "UR_L0_USE_COPY_ENGINE_FOR_D2D_COPY": "1",
    },
    "V2": {
        "UR_LOADER_USE_LEVEL_ZERO_V2": "1",
        "NEOReadDebugKeys": "1",
        "ForceCopyOperationOffloadForComputeCmdList": "2",
        "OverrideFillCopyOffloadThresholdKb": "1000000",
    },
}


# On an integrated GPU the driver keeps the second adapter's copies on the compute engine.
ADAPTER_PROFILES = {"V1": ("bmg", "lnl"), "V2": ("bmg",)}


# On an integrated GPU the driver keeps the second adapter's copies on the compute engine.
ADAPTER_PROFILES = {"V1": ("bmg", "lnl"), "V2": ("bmg",)}


def _ur_cases() -> tuple[Case, ...]:
    program = f"{PROGRAMS}/ur"
    # Only the second adapter shares physical memory.
    verbs = {"V1": ("virtual", "usm-ipc"), "V2": ("virtual", "usm-ipc", "physical-ipc")}
    return tuple(
        Case(
            "ur",
            _label(f"{verb} on {adapter}", code),
            (program, verb, *extra),
            code,
            env,
            profiles=ADAPTER_PROFILES[adapter],
        )
        for adapter, env in ADAPTERS.items()
        for verb in verbs[adapter]
        for code, extra in CONTROLS
    )


def _build_sycl(root: Root) -> None:
    wheels.install(root)
    shutil.copy(SOURCES / "sycl/copies.py", _place(root) / "copies.py")


def _sycl_cases() -> tuple[Case, ...]:
    program = (f"{wheels.ENVIRONMENT}/bin/python", f"{PROGRAMS}/copies.py")
    # Above this the second adapter's driver copies within the device by a kernel.
    largest = {"V1": "1000000000", "V2": "8192"}
    common = {"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"}
    return tuple(
        Case(
            "sycl",
            _label(adapter, code),
            (*program, largest[adapter], *extra),
            code,
            common | env,
            profiles=ADAPTER_PROFILES[adapter],
        )
        for adapter, env in ADAPTERS.items()
        for code, extra in CONTROLS
    )


def _build_vulkan(root: Root) -> None:
    sources = ["vulkan/*.c", "common/bytes.c", "common/child.c"]
    compile_in(root, "vulkan", sources, ["-lvulkan"])


def _vulkan_cases() -> tuple[Case, ...]:
    program = f"{PROGRAMS}/vulkan"
    env = {"VK_LOADER_DRIVERS_SELECT": "intel_icd*"}
    return tuple(
        Case("vulkan", _label(verb, code), (program, verb, *extra), code, env)
        for verb in ("external", "process", "sparse", "fill")
        for code, extra in CONTROLS
    )


CONTRACT_AND_OBSERVE = ("test_contract_ranges", "test_contract_sharing", "test_observe")


def _ze_ipc_cases() -> tuple[Case, ...]:
    python = f"{wheels.OWN_ENVIRONMENT}/bin/python"
    env = package.ENVIRONMENT
    tests = package.pytest(f"{package.PLACE}/tests/level_zero")
    demo = (python, "-m", "ze_ipc", "demo", "--backend", "level_zero", "--objects", "300")
    doctor = (python, "-m", "ze_ipc", "doctor", "--backend", "level_zero", "--selftest")
    native = {**env, "ZE_ENABLE_ALT_DRIVERS": package.RANGE_DRIVER}
    contract = package.pytest(
        *(f"{package.PLACE}/tests/level_zero/{name}.py" for name in CONTRACT_AND_OBSERVE)
    )
    alone = package.pytest(f"{package.PLACE}/tests/level_zero/test_contract_ranges.py")
    failed = 1  # of pytest, and of every verb
    nothing = {**env, "ZE_ENABLE_ALT_DRIVERS": "/no/such/driver.so"}
    return (
        Case("ze_ipc", "ranges through Level Zero", tests, env=env, limit=500.0),
        Case("ze_ipc", "a driver with the extension", contract, env=native, limit=300.0),
        Case("ze_ipc", "the same without a driver", alone, failed, nothing),
        Case("ze_ipc", "demo", demo, env=env),
        Case("ze_ipc", "doctor", doctor, env=env),
        Case("ze_ipc", "doctor without a driver", doctor, failed, nothing),
        *_old_loader_cases(doctor),
        *_sycl_context_cases(),
    )


def _sycl_context_cases() -> Iterator[Case]:
    """A range opened in the context of SYCL, with either adapter."""
    program = (f"{wheels.ENVIRONMENT}/bin/python", f"{package.PLACE}/tests/real/sycl/ranges.py")
    for adapter, adapter_env in ADAPTERS.items():
        for code, extra in CONTROLS:
            env = {
                **package.BESIDE_SYCL,
                "ONEAPI_DEVICE_SELECTOR": "level_zero:gpu",
                **adapter_env,
            }
            label = _label(f"a range in the context of SYCL on {adapter}", code)
            yield Case("ze_ipc", label, (*program, *extra), code, env)


def _old_loader_cases(doctor: tuple[str, ...]) -> Iterator[Case]:
    """Old loaders: functions that they lack are the driver's own, with wrapped handles, too."""
    # Layers of the oldest one crash under a driver that is newer.
    native = package.pytest(f"{package.PLACE}/tests/level_zero/test_native_way.py", "-k")
    observe = package.pytest(f"{package.PLACE}/tests/level_zero/test_observe.py")
    for suite in package.OLD_LOADERS:
        env = package.old_loader(suite)
        yield Case("ze_ipc", f"the loader of {suite}", doctor, env=env)
        wrapped = {**env, "ZE_ENABLE_LOADER_INTERCEPT": "1"}
        yield Case("ze_ipc", f"the loader of {suite}, wrapping", doctor, env=wrapped)
        tests = (*native, "loader or intercept")
        yield Case("ze_ipc", f"the loader of {suite}, native", tests, env=env, limit=200.0)
        # It turns its tracing layer on at its start only.
        traced = {**env, "ZE_ENABLE_TRACING_LAYER": "1"} if suite == "bookworm" else env
        yield Case("ze_ipc", f"the loader of {suite}, observed", observe, env=traced, limit=200.0)


def _label(name: str, code: int) -> str:
    return name + (", sabotaged" if code else "")


CLIENTS = {
    client.name: client
    for client in (
        Client("neo", _build_neo, _neo_cases()),
        Client("umf", _build_umf, _umf_cases()),
        Client("ur", _build_ur, _ur_cases()),
        Client("sycl", _build_sycl, _sycl_cases()),
        Client("ze_ipc", package.install, _ze_ipc_cases()),
        Client("vulkan", _build_vulkan, _vulkan_cases()),
    )
}
