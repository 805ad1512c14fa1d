"""Import a package that was compiled against torch, and explain why it does not load."""

import proof

# Loader messages and their meaning; the first match counts.
MEANINGS = (
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


def module(p, name, distribution=""):
    """Import a module; Absent if it is not installed, WrongResult with an explanation if it does not load."""
    try:
        return p.module(name, distribution)
    except proof.Absent:
        raise
    except ModuleNotFoundError as gone:
        if (gone.name or "").partition(".")[0] == name.partition(".")[0]:
            raise proof.Wrong("%s is incomplete: %s" % (distribution or name, gone)) from None
        raise proof.Wrong("%s needs %s, which is not installed" % (distribution or name, gone.name)) from None
    except (ImportError, OSError, RuntimeError, AttributeError) as bad:
        raise proof.Wrong("%s does not load: %s" % (distribution or name, meaning(bad))) from bad


def meaning(error):
    """Return the first line of an error, with its meaning if known."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    for sign, words in MEANINGS:
        if sign in str(error):
            line = next((x.strip() for x in str(error).splitlines() if sign in x), said)
            return "%s (%s)" % (words, line)
    return "%s: %s" % (type(error).__name__, said)


def names(holder, *wanted):
    """Return attributes of a module; WrongResult if one is missing: then it is not the expected package."""
    missing = [one for one in wanted if not hasattr(holder, one)]
    if missing:
        raise proof.Wrong("%s has no %s" % (getattr(holder, "__name__", holder), ", ".join(missing)))
    found = tuple(getattr(holder, one) for one in wanted)
    return found[0] if len(found) == 1 else found


def least(p, major, minor, what):
    """Raise Unsupported on a GPU below a compute capability; a CPU always passes."""
    here = p.capability()
    if p.cuda and here < (major, minor):
        raise proof.Unsupported(
            "%s begins at compute capability %d.%d; this GPU has %d.%d"
            % (what, major, minor, here[0], here[1])
        )
