"""Import the modules that a framework's own commands start from; what they need and is not installed is named.

An argument such as ``@sentence-transformers`` stands for the modules of that distribution.
"""

import package_import
import proof


def run_proof(p):
    p.torch()
    modules = [module for one in p.arguments for module in list_modules(one)]
    first = p.arguments[0]
    # open-clip-torch has the modules open_clip and open_clip_train: its version is found by the name of the distribution.
    distribution = first[1:] if first.startswith("@") else first.partition(".")[0]
    for module in modules:
        package_import.import_compiled(p, module, distribution)
    p.record_number("modules", len(modules), "equal", len(modules))


def list_modules(argument):
    """Return a module as it is; of ``@distribution`` the module of its name, else all that its files have."""
    if not argument.startswith("@"):
        return [argument]
    from importlib import metadata

    name = argument[1:]
    try:
        files = metadata.files(name) or ()
    except metadata.PackageNotFoundError:
        raise proof.Absent("%s is not installed" % name, name) from None
    packages = {file.parts[0] for file in files if len(file.parts) == 2 and file.parts[1] == "__init__.py"}
    modules = {file.parts[0][:-3] for file in files if len(file.parts) == 1 and file.suffix == ".py"}
    known = sorted(one for one in packages | modules if one.isidentifier())
    own = name.replace("-", "_").replace(".", "_").lower()
    return [one for one in known if one.lower() == own] or known or [own]
