"""What the build makes: the tables of the catalogue and the contracts from TOML, and with BUILD_EXT=1 the example kernels.

``BUILD_EXT=1 pip install .`` compiles them while the wheel is made, and they travel inside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "GPUREADY_TABLES_COMPILED_IN"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # A process of its own: what is imported here already may be another gpuready. Once for an sdist and a wheel that one process builds.
        if os.environ.get(COMPILED) != self.root:
            subprocess.run([sys.executable, str(Path(self.root) / "tools" / "compile_catalog.py")], check=True)
            os.environ[COMPILED] = self.root
        source = str(Path(self.root) / "src")
        sys.path.insert(0, source)
        try:
            from gpuready.extensions import prebuild
            from gpuready.extensions.example import EXAMPLE_EXTENSIONS

            if self.target_name != "wheel" or not prebuild.is_build_requested(os.environ):
                return
            made, left = prebuild.build_extensions(EXAMPLE_EXTENSIONS, prebuild.PREBUILT_FOLDER)
        finally:
            sys.path.remove(source)
        for name, why in left.items():
            self.app.display_warning(f"not built: {name}: {why}")
        if version == "editable":  # they stand in the source tree, where they are found
            return
        for entry in made:
            at = Path(entry.path)
            for file in (at, at.with_suffix(".json")):
                build_data["force_include"][str(file)] = f"gpuready/extensions/prebuilt/{file.name}"
        # Machine code of ours and a plain C interface: any Python, this kind of machine.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
