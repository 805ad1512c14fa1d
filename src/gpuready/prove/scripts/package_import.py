"""Import a package that was compiled against torch, and explain why it does not load."""

import proof

# Loader messages and their meaning; the first match counts.
LOAD_ERROR_MEANINGS = (
    ("undefined symbol", "it was built for another torch or another C++ ABI"),
    ("version `GLIBCXX", "it was built with a newer C++ runtime"),
    ("version `GLIBC_", "it was built for a newer C library"),
    ("libcudart.so", "it was built for another CUDA than this torch brings"),
    ("libnvrtc.so", "it was built for another CUDA than this torch brings"),
    ("libcublas", "it was built for another CUDA than this torch brings"),
    ("libc10", "it was built for another torch"),
    ("libtorch", "it was built for another torch"),
    ("invalid ELF header", "its library is for another system, or damaged"),
    ("wrong ELF class", "its library is for another processor"),
    ("cannot open shared object file", "a library that it needs is not here"),
    ("no kernel image is available", "it has no code for this GPU"),
    ("module compiled against ABI version", "it was built for another numpy"),
)


def import_compiled(p, name, distribution=""):
    """Import a module; Absent if it is not installed, WrongResult with an explanation if it does not load."""
    try:
        return p.import_module(name, distribution)
    except proof.Absent:
        raise
    except ModuleNotFoundError as gone:
        if (gone.name or "").partition(".")[0] == name.partition(".")[0]:
            raise proof.WrongResult("%s is incomplete: %s" % (distribution or name, gone)) from None
        raise proof.WrongResult("%s needs %s, which is not installed" % (distribution or name, gone.name)) from None
    except (ImportError, OSError, RuntimeError, AttributeError) as bad:
        raise proof.WrongResult("%s does not load: %s" % (distribution or name, explain_load_error(bad))) from bad


def explain_load_error(error):
    """Return the first line of an error, with its meaning if known."""
    first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    for pattern, words in LOAD_ERROR_MEANINGS:
        if pattern in str(error):
            line = next((x.strip() for x in str(error).splitlines() if pattern in x), first_line)
            return "%s (%s)" % (words, line)
    return "%s: %s" % (type(error).__name__, first_line)


def get_attributes(holder, *wanted):
    """Return attributes of a module; WrongResult if one is missing: then it is not the expected package."""
    missing = [one for one in wanted if not hasattr(holder, one)]
    if missing:
        raise proof.WrongResult("%s has no %s" % (getattr(holder, "__name__", holder), ", ".join(missing)))
    attributes = tuple(getattr(holder, one) for one in wanted)
    return attributes[0] if len(attributes) == 1 else attributes


def require_capability(p, major, minor, what):
    """Raise Unsupported on a GPU below a compute capability; a CPU always passes."""
    here = p.capability()
    if p.cuda and here < (major, minor):
        raise proof.Unsupported(
            "%s begins at compute capability %d.%d; this GPU has %d.%d" % (what, major, minor, here[0], here[1])
        )
