"""What workflow/Snakefile executes: include the Snakefile of the folder above, also if only Git has it.

This file imports the standard library and Snakemake only, because it runs before the library is there.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError


def include_from_above(workflow: Any) -> None:
    """Include the Snakefile of the folder above, with its first rule as what Snakemake makes if no target is named."""
    folder = _folder_above(workflow.current_basedir)
    workflow.include(str(folder / "Snakefile"), overwrite_default_target=True)


def _folder_above(source: Any) -> Path:
    """Return the folder above `source`, the folder of a Snakefile.

    If Snakemake reads the Snakefile from a repository (`github(...)`), there is no such folder, and the workflow needs
    one: it runs programs and imports a library. So we check the repository out, once for each commit and user.
    """
    if type(source).__name__ == "LocalSourceFile":
        return Path(source.path).parent
    hosted = hasattr(source, "hosted_repo")
    repository = str(source.hosted_repo.repo_clone if hosted else Path(source.repo_path).resolve())
    commit = _git(repository, "rev-parse", f"{source.ref}^{{commit}}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "workflows")
    folder = cache / commit
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            _git(temporary, "clone", "--quiet", "--no-checkout", repository, "clone")
            _git(f"{temporary}/clone", "checkout", "--quiet", "--detach", commit)
            try:
                os.rename(f"{temporary}/clone", folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster
                    raise
    return folder


def _git(folder: str, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkflowError(f"git {' '.join(words)} failed in {folder}: {done.stderr.strip()}")
    return done.stdout.strip()
