"""The C tests of the mock device and of the backend's loops, each under the sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MOCK = ROOT / "native" / "mock"
STREAM = ROOT / "native" / "stream"
ZE = ROOT / "native" / "ze"
PROGRAMS = sorted(path.stem for path in HERE.glob("test_*.c"))
FUZZ = HERE.parent / "fuzz"
FUZZ_TARGETS = sorted(path.stem[len("fuzz_") :] for path in FUZZ.glob("fuzz_*.c"))
UNDER_TSAN = [
    "test_threads",
    "test_pending",
    "test_primitives",
    "test_queues",
    "test_syncobjs",
    "test_xe_loops",
    "test_ze_rows",
    "test_ze_space",
    "test_syncobj_fds",
    "test_exec_races",
]
# The sanitizers' own allocators are not safe in the child of a process with threads.
ARGUMENTS = {"test_threads": ["nofork"]}

FLAGS = [
    "-std=gnu11",
    "-O1",
    "-g",
    "-D_GNU_SOURCE",
    "-fno-omit-frame-pointer",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wno-missing-field-initializers",
    f"-I{MOCK}",
    f"-I{ROOT / 'ioctl'}",
    f"-I{STREAM}",
    f"-I{ZE}",
    "-pthread",
]
ASAN = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
TSAN = ["-fsanitize=thread"]
WRAP = ["-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc"]

COMPILER = shutil.which("gcc") or "gcc"


def core_sources() -> list[Path]:
    """The C files of the device core that its CMakeLists.txt lists, and of the backend's loops."""
    listed = (MOCK / "CMakeLists.txt").read_text()
    names = {path.name for path in MOCK.glob("*.c")}
    sources = [MOCK / name for name in sorted(names) if f" {name}" in listed.replace("\n", " ")]
    assert MOCK / "vm.c" in sources
    return [
        *sources,
        *sorted((ROOT / "ioctl").glob("xe_*.c")),
        *sorted(STREAM.glob("*.c")),
        *sorted(ZE.glob("*.c")),
    ]


def build_core(directory: Path, sanitizer: list[str]) -> list[Path]:
    """One object file a source."""

    def compile_one(source: Path) -> Path:
        target = directory / f"{source.stem}.o"
        command = [COMPILER, *FLAGS, *sanitizer, "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True, timeout=300)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, core_sources()))


def run_program(
    name: str, directory: Path, core: list[Path], sanitizer: list[str], *arguments: str
) -> None:
    source, program = HERE / f"{name}.c", directory / name
    wrap = WRAP if "__wrap_malloc" in source.read_text() else []
    command = [
        COMPILER,
        *FLAGS,
        *sanitizer,
        *wrap,
        str(source),
        *map(str, core),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True, timeout=300)
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def asan_core(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    directory = tmp_path_factory.mktemp("asan")
    return directory, build_core(directory, ASAN)


@pytest.fixture(scope="session")
def tsan_core(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    directory = tmp_path_factory.mktemp("tsan")
    return directory, build_core(directory, TSAN)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_under_address_and_undefined_sanitizers(
    name: str, asan_core: tuple[Path, list[Path]]
) -> None:
    run_program(name, *asan_core, ASAN, *ARGUMENTS.get(name, []))


@pytest.mark.parametrize(
    ("body", "sanitizer"),
    [
        ("keep = malloc(24); keep = NULL;", "LeakSanitizer"),
        ("keep = malloc(24); free(keep); *(volatile char *)keep = 1;", "AddressSanitizer"),
        ("int big = 0x7fffffff; volatile int more = big; more = more + 1;", "runtime error"),
    ],
)
def test_the_sanitizers_see(tmp_path: Path, body: str, sanitizer: str) -> None:
    """Leaks too: they are looked for at each program's end."""
    (tmp_path / "bad.c").write_text(
        f"#include <stdlib.h>\nvoid *volatile keep;\nint main(void) {{ {body} return 0; }}\n"
    )
    program = tmp_path / "bad"
    command = [COMPILER, "-O0", "-g", *ASAN, str(tmp_path / "bad.c"), "-o", str(program)]
    subprocess.run(command, check=True, timeout=300)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert sanitizer in done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FUZZ_TARGETS)
def test_inputs_of_fuzz_targets(name: str, asan_core: tuple[Path, list[Path]]) -> None:
    """The committed inputs of the fuzz targets in C, without a fuzzer."""
    replay(name, *asan_core, ASAN)


@pytest.mark.timeout(600)
def test_inputs_of_the_desk_under_thread_sanitizer(tsan_core: tuple[Path, list[Path]]) -> None:
    """It has threads of its own that send."""
    replay("desk", *tsan_core, TSAN)


def replay(name: str, directory: Path, core: list[Path], sanitizer: list[str]) -> None:
    program = directory / f"fuzz_{name}"
    sources = (FUZZ / f"fuzz_{name}.c", FUZZ / "replay.c")
    command = [COMPILER, *FLAGS, *sanitizer, f"-I{HERE}", *map(str, (*sources, *core))]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=300)
    inputs = sorted(map(str, (FUZZ / "corpus" / name).iterdir()))
    assert inputs
    done = subprocess.run(
        [str(program), *inputs], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(inputs)} inputs" in done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", UNDER_TSAN)
def test_under_thread_sanitizer(name: str, tsan_core: tuple[Path, list[Path]]) -> None:
    run_program(name, *tsan_core, TSAN, "nofork")


@pytest.mark.timeout(600)
def test_forks_among_threads(tmp_path: Path) -> None:
    run_program("test_threads", tmp_path, build_core(tmp_path, []), [])
