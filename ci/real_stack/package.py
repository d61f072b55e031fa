"""This checkout's package in the root, with its tests: Level Zero's real driver under it."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

from debian_packages import AptRoot, NoPackages, cache_directory, locked
from real_stack import wheels
from real_stack.root import Broken, Root, Unavailable

TESTS = Path(__file__).resolve().parents[2] / "tests"
# Where this checkout is put in the root, which other checkouts use, too.
PLACE = f"/opt/ze-ipc-package-{sha256(str(TESTS).encode()).hexdigest()[:8]}"
RANGE_DRIVER = f"{PLACE}/librange_driver.so"
"""Our driver that has the range extension, for the real loader."""
OLD_LOADERS = ("bookworm", "trixie")
"""Suites whose loaders (1.8.12, 1.20.6) are older than functions that the driver has."""
IGNORED = shutil.ignore_patterns("__pycache__", ".*")


def install(root: Root) -> None:
    """Copy what is installed here: the Python of the checkout, and what was compiled for it."""
    import ze_ipc
    from ze_ipc import _ze

    wheels.install(root, wheels.OWN_WHEELS)
    wheels.install(root)
    place = root.path / PLACE.lstrip("/")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(Path(ze_ipc.__file__).parent, place / "ze_ipc", ignore=IGNORED)
    for compiled in Path(_ze.__file__).parent.glob("*.so"):
        shutil.copy(compiled, place / "ze_ipc")
    for name in ("helpers", "level_zero", "device"):
        shutil.copytree(TESTS / name, place / "tests" / name, ignore=IGNORED)
    shutil.copy(TESTS / "conftest.py", place / "tests")
    shutil.copytree(TESTS / "real/sycl", place / "tests/real/sycl", ignore=IGNORED)
    # Its example is run there, too.
    shutil.copy(TESTS.parent / "docs/howto/dpctl.md", place / "tests/real/sycl")
    for site in (root.path / wheels.OWN_ENVIRONMENT.lstrip("/")).glob("lib/python3*/site-packages"):
        (place / "needs").symlink_to("/" + str(site.relative_to(root.path)))
    # The test driver is compiled there, with our declarations.
    shutil.copytree(TESTS.parent / "native/ze", place / "native/ze", ignore=IGNORED)
    _compile_range_driver(root)
    for suite in OLD_LOADERS:
        shutil.copytree(_old_loader(suite), place / "loaders" / suite, symlinks=True)


def _compile_range_driver(root: Root) -> None:
    program = "import sys; from pathlib import Path; from helpers import libraries; "
    program += "libraries.range_driver(Path(sys.argv[1]))"
    command = [f"{wheels.OWN_ENVIRONMENT}/bin/python", "-c", program, RANGE_DRIVER]
    result = root.run(command, limit=120, env=ENVIRONMENT)
    if not result.ok:
        raise Broken(f"the test driver does not compile in the root:\n{result.output}")


def _old_loader(suite: str) -> Path:
    cache = cache_directory()
    with locked(cache / "loaders.lock"):
        apt = AptRoot(cache / "loaders-apt", OLD_LOADERS)
        try:
            apt.update()
            tree = apt.unpack("libze1", suite, cache / "loaders")
        except NoPackages as error:
            raise Unavailable(f"the loader of {suite}: {error}") from error
    return tree / "usr/lib/x86_64-linux-gnu"


def old_loader(suite: str) -> dict[str, str]:
    """The environment in which the loader of a suite is taken."""
    place = f"{PLACE}/loaders/{suite}"
    return {**ENVIRONMENT, "ZEL_LIBRARY_PATH": place, "LD_LIBRARY_PATH": place}


def pytest(*arguments: str) -> tuple[str, ...]:
    """The command that runs some of the tests there."""
    options = ("-q", "-c", "/dev/null", f"--rootdir={PLACE}/tests", "--import-mode=importlib")
    python = f"{wheels.OWN_ENVIRONMENT}/bin/python"
    return (python, "-m", "pytest", "-p", "no:cacheprovider", *options, *arguments)


ENVIRONMENT = {
    "PYTHONPATH": f"{PLACE}:{PLACE}/tests",
    "PYTHONDONTWRITEBYTECODE": "1",
    # A run in which everything is skipped proves nothing.
    "ZE_IPC_TEST_REQUIRE": "level_zero",
}
BESIDE_SYCL = {**ENVIRONMENT, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{PLACE}/needs"}
"""For the Python of the clients, which has not what this package needs."""
