"""Change the packages of an environment by uv, with heed to everything that is installed: uv alone looks at what it was asked for."""

import os
from collections.abc import Callable, Mapping, Sequence

from gpuready.apply import uv
from gpuready.apply.audit import list_distributions, list_site_folders
from gpuready.apply.install_errors import InstallFailed
from gpuready.apply.uv import UvSettings, explain_uv_failure
from gpuready.apply.wheel_contents import find_overreach
from gpuready.catalog.packages import canonical_package_name, list_positional_words, split_requirement
from gpuready.model.metadata import is_for_other_extra, parse_requirement
from gpuready.system import HostAccess, durable_files, file_contents
from gpuready.system.imports.distributions import Distribution, list_replaced

_BUILD_WORDS = ("--no-build-isolation", "--no-binary", "--only-binary", "--no-build")
_TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")
CHECK_DEADLINE = 120.0


def forbid_builds(run: Sequence[str]) -> tuple[str, ...]:
    """Let a ``uv pip install`` take wheels only, unless the command itself says what is built."""
    states_build = any(word in _BUILD_WORDS or "git+" in word for word in run)
    if run[:3] != ("uv", "pip", "install") or states_build:
        return tuple(run)
    return (*run[:3], "--only-binary", ":all:", *run[3:])


class EnvironmentPackages:
    """The packages of one environment, changed by uv alone."""

    def __init__(
        self,
        host: HostAccess,
        environment: str,
        settings: UvSettings,
        show_step: Callable[[str], None],
        deadline: float,
    ):
        self.host, self.environment, self.settings = host, environment, settings
        self.show_step, self.deadline = show_step, deadline

    # -- what is there ------------------------------------------------------------------------------------

    def list_conflicts(self) -> list[str]:
        """Return what uv finds unmet: ``The package `a` requires `b<2`, but `2.4` is installed``."""
        words = (uv.find_uv(self.host), "pip", "check", "--python", self._python)
        ran = uv.run_uv(self.host, words, self.settings, lambda line: None, CHECK_DEADLINE)
        found = [line.strip() for line in ran.err.splitlines() if line.startswith("The package ")]
        return found or ([explain_uv_failure(ran, "pip check")] if ran.rc != 0 else [])

    def list_requirements(self, first: str = "", without: Sequence[str] = ()) -> list[str]:
        """Return every installed package as a requirement: the named one, then those that no other requires. torch stays what it is."""
        installed = {copy.name: copy for copy in list_distributions(self.environment)}
        texts = [text for copy in installed.values() for text in copy.list_requirements()]
        needed = {parse_requirement(text)[0] for text in texts if not is_for_other_extra(text, frozenset([""]))}
        names = sorted(installed, key=lambda name: (name != first, name in needed, name))
        pins = {name: f"=={installed[name].version}" for name in _TORCH_PACKAGES if name in installed}
        return [f"{name}{pins.get(name, '')}" for name in names if name not in without]

    @property
    def _python(self) -> str:
        return f"{self.environment}/bin/python"

    # -- changes ------------------------------------------------------------------------------------------

    def change(self, run: Sequence[str], first: str, ranges: Mapping[str, str]) -> None:
        """Run a command of a fix: with all that is installed, then with ``ranges`` for exact versions, then for these alone; else as it is.

        One with ``--no-deps`` is of what it names alone; a release that is not for this Python gives way to another.
        """
        if run[:3] == ("uv", "pip", "install") and not {"-r", "-e"} & {*run}:
            positional, loose = list_positional_words(run[3:]), [_loosen_pin(word, ranges) for word in run]
            others = {word for word in positional if split_requirement(word)[0] not in ranges}
            kept = loose if "--no-deps" in run else [word for word in loose if word not in others]
            for words in dict.fromkeys([tuple(run), tuple(loose), tuple(kept)]):
                named = [split_requirement(word)[0] for word in list_positional_words(words[3:])]
                beside = [] if "--no-deps" in run else self.list_requirements(first, named)
                try:
                    return self.run_uv((*words, *beside))
                except InstallFailed:
                    self.show_step("looking for other versions")
        return self.run_uv(run)

    def resolve_conflicts(self, first: str, allow_build: bool) -> None:
        """Let uv find versions with which every installed package has what it requires. InstallFailed where there are none."""
        run = ("uv", "pip", "install", *self.list_requirements(first))
        self.run_uv(run if allow_build else forbid_builds(run))

    def delete(self, path: str) -> None:
        """Delete a file or a folder of this environment. InstallFailed where a link leads out of it."""
        if not file_contents.resolve_real_path(os.path.dirname(path)).startswith(f"{self.environment}/"):
            raise InstallFailed(f"{path} is not inside of the environment")
        durable_files.remove_tree(path)

    def run_uv(self, run: Sequence[str]) -> None:
        """Run a ``uv pip`` command for this environment. InstallFailed where it fails."""
        words = list(run[1:])
        if "--python" in words:
            place = words.index("--python")
            del words[place : place + 2]
        words[2:2] = ["--python", self._python]
        words = self._use_local_torch(words)
        program = uv.find_uv(self.host)
        ran = uv.run_uv(self.host, (program, *words), self.settings, self._report_line, self.deadline)
        if ran.rc != 0 and self.settings.extra and "UV_INDEX" not in self.settings.env:
            # pip's extra indexes are asked only where the others do not do, and then as pip asks them: all alike.
            self.show_step("asking pip's extra indexes too")
            argv = (program, *words, "--index-strategy", "unsafe-best-match")
            extra: dict[str, str | None] = {"UV_INDEX": " ".join(self.settings.extra)}
            ran = uv.run_uv(self.host, argv, self.settings, self._report_line, self.deadline, extra)
        if ran.rc != 0:
            raise InstallFailed(explain_uv_failure(ran, " ".join(words[:2])))
        self._remove_leftovers()
        faults = find_overreach(self.environment)
        if faults:
            raise InstallFailed(f"{faults[0].path} is not a wheel's to bring: {faults[0].says}", 1, faults=faults)

    def _report_line(self, line: str) -> None:
        if line.startswith(("Resolved", "Prepared", "Installed", "Uninstalled", "Downloading", "Building", "Built")):
            self.show_step(line.strip())

    def _use_local_torch(self, words: list[str]) -> list[str]:
        """Leave PyTorch's index out where a folder of wheels has the build that is asked for: the index may be out of reach."""
        builds = [word.removeprefix("torch==") for word in words if word.startswith("torch==") and "+" in word]
        if not builds or "--torch-backend" not in words:
            return words
        tags = [
            "cp" + folder.split("/")[-2].removeprefix("python").replace(".", "")
            for folder in list_site_folders(self.environment)
        ]
        files = [
            file.replace("%2B", "+")
            for folder in self.settings.folders
            for file in self.host.list_directory(folder) or ()
        ]
        if not any(file.startswith(f"torch-{builds[0]}-{tag}-") for file in files for tag in tags):
            return words
        at = words.index("--torch-backend")
        return [*words[:at], *words[at + 2 :]]

    def repair_metadata(self) -> None:
        """Remove what stops uv, and install anew what has lost its files, its metadata, or a RECORD that can be read."""
        self._remove_leftovers()
        broken = self._list_broken_metadata()
        for folder, entry in broken:
            durable_files.unlink_quietly(f"{folder}/{entry}/RECORD")  # uv stops at one that it cannot read
        pins = ["==".join(entry.removesuffix(".dist-info").split("-")) for _, entry in broken]
        if pins:
            self.show_step(f"installing {', '.join(pins)} anew: files or metadata are lost")
            self.run_uv(("uv", "pip", "install", "--only-binary", ":all:", "--reinstall", "--no-deps", *pins))

    def _remove_leftovers(self) -> None:
        """Remove what pip left of an uninstall (``~eft``), links to nowhere, and metadata that is damaged or whose files were replaced, beside other."""
        sites = [f"{self.environment}/{folder}" for folder in list_site_folders(self.environment)]
        for path in [f"{site}/{entry}" for site in sites for entry in self.host.list_directory(site) or ()]:
            if os.path.basename(path).startswith("~") or (self.host.stat_path(path) or {}).get("kind") == "link":
                durable_files.remove_tree(path)
        broken = [f"{folder}/{entry}" for folder, entry in self._list_broken_metadata()]
        whole = {copy.name for copy in list_distributions(self.environment) if copy.info not in broken}
        left = [info for info in broken if canonical_package_name(os.path.basename(info).partition("-")[0]) in whole]
        for path in dict.fromkeys([*left, *list_replaced(sites)]):
            self.delete(path)

    def _list_broken_metadata(self) -> list[tuple[str, str]]:
        """Return the folder and the name of metadata (``kite-1.0.dist-info``) that is of no use."""
        sites = [f"{self.environment}/{folder}" for folder in list_site_folders(self.environment)]
        entries = [(site, entry) for site in sites for entry in self.host.list_directory(site) or ()]
        infos = [(site, entry) for site, entry in entries if entry.endswith(".dist-info") and entry.count("-") == 2]
        return [(site, entry) for site, entry in infos if _is_damaged(f"{site}/{entry}")]


def _is_damaged(info: str) -> bool:
    """Whether metadata is of no use: METADATA without a name, a RECORD with a row of less than three fields, or of which no file is there."""
    record = file_contents.read_text_file(f"{info}/RECORD") or ""
    is_torn = any(line.count(",") < 2 for line in record.splitlines() if line)
    found = Distribution("", "", os.path.dirname(info), info)
    return is_torn or not dict(found.headers).get("name") or found.has_lost_files()


def _loosen_pin(word: str, ranges: Mapping[str, str]) -> str:
    """Return what is asked of a package in place of the one version that was chosen; torch, whose builds count, stays exact."""
    name, specifier = split_requirement(word)
    if not specifier.startswith("==") or name in _TORCH_PACKAGES:
        return word
    wanted = ranges.get(name, "")
    return name if wanted in ("", "*") or "|" in wanted else f"{name}{wanted}"
