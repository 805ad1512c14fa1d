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
    (info / "top_level.txt").write_text("demo\n")
    env.rewrite("demo-1.0.dist-info/RECORD", lambda data: data + b"__editable___demo_1_0_finder.py,,\n")
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


# -- what an editable install imports, and nobody recorded


def _edit(env: EnvironmentCopy, name: str, text: str) -> None:
    path = env.root / "src" / "demo" / name
    before = path.read_text()
    path.unlink()  # a hard link
    path.write_text(before + text)


@way
def editable_with_an_import_that_nobody_requires(env: EnvironmentCopy) -> None:
    _make_editable(env, "pth")
    _edit(env, "plain.py", "import none_such_module\n")


@way
def editable_by_finder_with_an_import_that_nobody_requires(env: EnvironmentCopy) -> None:
    _make_editable(env, "finder")
    _edit(env, "plain.py", "from none_such_module import x\n")


@way
def editable_without_one_of_its_parts(env: EnvironmentCopy) -> None:
    _make_editable(env, "pth")
    _edit(env, "guarded.py", "from demo.renamed import x\n")


@way
def editable_whose_part_lost_a_name(env: EnvironmentCopy) -> None:
    _make_editable(env, "pth")
    _edit(env, "guarded.py", "from .plain import renamed\n")


@way
def editable_with_a_guarded_part(env: EnvironmentCopy) -> None:
    _make_editable(env, "pth")
    _edit(env, "guarded.py", "try:\n    from ._version import version\nexcept ImportError:\n    version = '0'\n")


# -- folders that were left behind


@way
def folder_of_a_removed_package(env: EnvironmentCopy) -> None:
    """Byte-code stays after an uninstall: the folder is a package without names."""
    for path in (env.site / "yaml").glob("*.py"):
        path.unlink()
    env.delete("[pP]y[yY][aA][mM][lL]-*")


@way
def folder_of_a_removed_namespace_package(env: EnvironmentCopy) -> None:
    _use_namespace(env)
    env.rewrite("demo-1.0.dist-info/METADATA", lambda data: data.replace(b"Requires-Dist: space-part\n", b""))
    env.delete("space/part.py")
    env.delete("space_part-*")
    env.delete("space-part-*")


@way
def empty_folder_of_a_package_that_is_only_imported(env: EnvironmentCopy) -> None:
    env.rewrite("demo/guarded.py", lambda data: data + b"import space\n")
    env.rewrite("demo-1.0.dist-info/RECORD", lambda data: data.replace(b"demo/guarded.py", b"demo/extra.py"))
    (env.site / "space").mkdir()


# -- code lines of .pth files


@way
def folder_of_a_code_line(env: EnvironmentCopy) -> None:
    _move_yaml(env)
    (env.site / "more.pth").write_text(f"import sys; sys.path.insert(0, '{env.root}/more')\n")


@way
def folder_of_a_code_line_with_a_site(env: EnvironmentCopy) -> None:
    _move_yaml(env)
    (env.site / "more.pth").write_text(f'import site; site.addsitedir("{env.root}/more")\n')


@way
def code_line_that_does_nothing(env: EnvironmentCopy) -> None:
    _move_yaml(env)
    (env.site / "more.pth").write_text("import os; os.environ.setdefault('DEMO', '1')\n")


def _move_yaml(env: EnvironmentCopy) -> None:
    more = env.root / "more"
    more.mkdir()
    for name in ("yaml", "_yaml"):
        (env.site / name).rename(more / name)
    env.path("[pP]y[yY][aA][mM][lL]-*").rename(more / env.path("[pP]y[yY][aA][mM][lL]-*").name)


# -- metadata


@way
def metadata_that_an_import_asks_for(env: EnvironmentCopy) -> None:
    env.use("import importlib.metadata\nVERSION = importlib.metadata.version('safetensors')")
    env.delete("safetensors-*")


@way
def record_with_dots(env: EnvironmentCopy) -> None:
    env.rewrite("demo-1.0.dist-info/RECORD", lambda data: data.replace(b"demo/", b"./demo/"))
    env.delete("demo/plain.py")


@way
def extension_for_a_free_threaded_python(env: EnvironmentCopy) -> None:
    _rename_extension(env, f"cpython-{MINOR.replace('.', '')}", f"cpython-{MINOR.replace('.', '')}t")


@way
def extension_for_another_machine_by_its_name(env: EnvironmentCopy) -> None:
    _rename_extension(env, "x86_64-linux", "s390x-linux")


def _rename_extension(env: EnvironmentCopy, old: str, new: str) -> None:
    env.use(USES["numpy"])
    path = env.path("numpy/_core/_multiarray_umath*.so")
    path.rename(path.with_name(path.name.replace(old, new)))
    env.rewrite(
        "numpy-*.dist-info/RECORD", lambda data: data.replace(path.name.encode(), path.name.replace(old, new).encode())
    )
