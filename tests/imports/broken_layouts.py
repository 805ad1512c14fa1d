"""Ways to lay an environment out that break it, or do not: editable installs, checkouts, namespaces, other folders, eggs."""

from __future__ import annotations

import shutil

from tests.imports.breakages import USES, require, way
from tests.imports.copies import MINOR, EnvironmentCopy


def _make_editable(env: EnvironmentCopy, hook: str) -> None:
    source = env.root / "src"
    source.mkdir()
    (env.site / "demo").rename(source / "demo")
    info = env.site / "demo-1.0.dist-info"
    (info / "direct_url.json").write_text(f'{{"dir_info": {{"editable": true}}, "url": "file://{env.root}/src"}}')
    env.rewrite("demo-1.0.dist-info/RECORD", lambda _: b"demo-1.0.dist-info/METADATA,,\n")
    if hook == "pth":
        (env.site / "_demo.pth").write_text(f"{source}\n")
        return
    finder = FINDER.format(mapping={"demo": f"{source}/demo"})
    (env.site / "__editable___demo_1_0_finder.py").write_text(finder)
    (env.site / "__editable__.demo-1.0.pth").write_text(
        "import __editable___demo_1_0_finder; __editable___demo_1_0_finder.install()\n"
    )


FINDER = """import sys
from importlib.util import spec_from_file_location
MAPPING: dict[str, str] = {mapping!r}
class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return spec_from_file_location(fullname, MAPPING[fullname] + "/__init__.py")
def install():
    sys.meta_path.append(_EditableFinder)
"""


@way
def editable_by_pth(env: EnvironmentCopy) -> None:
    _make_editable(env, "pth")


@way
def editable_by_finder(env: EnvironmentCopy) -> None:
    _make_editable(env, "finder")


@way
def editable_by_pth_whose_source_is_gone(env: EnvironmentCopy) -> None:
    _make_editable(env, "pth")
    (env.root / "src").rename(env.root / "moved")


@way
def editable_by_finder_whose_source_is_gone(env: EnvironmentCopy) -> None:
    _make_editable(env, "finder")
    (env.root / "src").rename(env.root / "moved")


@way
def editable_without_its_module(env: EnvironmentCopy) -> None:
    _make_editable(env, "pth")
    (env.root / "src" / "demo").rename(env.root / "src" / "old")


@way
def editable_from_the_current_folder(env: EnvironmentCopy) -> None:
    _make_editable(env, "pth")
    env.here = env.root / "src"


@way
def checkout_of_the_framework(env: EnvironmentCopy) -> None:
    """A checkout in the current folder, complete, beside the installed copy."""

    shutil.copytree(env.site / "demo", env.here / "demo")


@way
def checkout_without_a_module(env: EnvironmentCopy) -> None:
    checkout_of_the_framework(env)
    (env.here / "demo" / "plain.py").unlink()


def _use_namespace(env: EnvironmentCopy) -> None:
    env.install("space-part", "1", {"space/part.py": "x = 1\n"})
    env.rewrite("demo/guarded.py", lambda data: data + b"import space.part\n")
    env.rewrite("demo-1.0.dist-info/RECORD", lambda data: data.replace(b"demo/guarded.py", b"demo/extra.py"))
    require(env, "space-part")


@way
def namespace_package(env: EnvironmentCopy) -> None:
    _use_namespace(env)


@way
def namespace_package_in_two_folders(env: EnvironmentCopy) -> None:
    _use_namespace(env)
    env.install("space-other", "1", {"space/other.py": "x = 1\n"}, at=env.root / "more")
    env.variables["PYTHONPATH"] = str(env.root / "more")


@way
def namespace_package_that_became_a_plain_one(env: EnvironmentCopy) -> None:
    namespace_package_in_two_folders(env)
    (env.root / "more" / "space" / "__init__.py").write_text("")


@way
def system_packages_that_are_not_shared(env: EnvironmentCopy) -> None:
    base = env.root / "base" / "lib" / f"python{MINOR}" / "site-packages"
    base.mkdir(parents=True)
    (env.site / "yaml").rename(base / "yaml")
    env.path("[pP]y[yY][aA][mM][lL]-*").rename(base / env.path("[pP]y[yY][aA][mM][lL]-*").name)


@way
def user_site_with_an_older_copy(env: EnvironmentCopy) -> None:
    """A virtual environment does not see the user's site folder."""
    user = env.here / ".local" / "lib" / f"python{MINOR}" / "site-packages"
    env.install("pyyaml", "1.0", {"yaml/__init__.py": "x = 1\n"}, at=user)


@way
def egg_info_without_a_record(env: EnvironmentCopy) -> None:
    """As Debian installs its packages."""
    info = env.path("[pP]y[yY][aA][mM][lL]-*")
    env.delete(f"{info.name}/RECORD")
    (info / "METADATA").rename(info / "PKG-INFO")
    info.rename(info.with_name("PyYAML-6.0.egg-info"))


@way
def egg_info_without_its_module(env: EnvironmentCopy) -> None:
    egg_info_without_a_record(env)
    (env.site / "PyYAML-6.0.egg-info" / "top_level.txt").write_text("yaml\n")
    env.delete("yaml")


@way
def stripped_extension(env: EnvironmentCopy) -> None:
    import subprocess

    env.use(USES["numpy"])
    path = env.path("numpy/_core/_multiarray_umath*.so")
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    subprocess.run(["strip", "--strip-unneeded", str(path)], check=False, capture_output=True)
