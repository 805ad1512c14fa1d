"""The files of the weights are pointers or incomplete.

The file that should hold weights holds something else: a pointer of git-lfs (three lines of text, from a clone without git-lfs), a page of HTML that a
proxy sent, or the beginning of the weights, where a download or a copy was cut off. The reader then finds a header that cannot be: its first eight bytes
are read as a length, and the text ``version `` makes an enormous one.

Fetch the files again, with ``hf download`` or ``git lfs pull``, and compare their sizes with those on the hub. A checkpoint that torch refuses because of
the classes in it is another matter, and so is one whose shapes do not fit the model.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "SYS024"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Error while deserializing header:",
    "Error while deserializing: ",
    "MetadataIncompleteBuffer",
    "incomplete metadata, file not fully covered",
    "InvalidHeaderDeserialization",
    "InvalidHeaderLength",
    {"says": "SafetensorError: header too large"},
    {"says": "_pickle.UnpicklingError: invalid load key, '{key}'"},
    {"says": "invalid load key, '", "in": "exception"},
    {"says": "WeightsUnpickler error: Unsupported operand 118"},
    {"says": "WeightsUnpickler error: Unsupported operand 60"},
    {"says": "PytorchStreamReader failed reading"},
    {"says": "failed finding central directory"},
    {"says": "not a ZIP archive", "in": "exception"},
    {"says": "You seem to have cloned a repository without having git-lfs installed"},
    {"says": "version https://git-lfs.github.com/spec/v1"},
    {"says": "unexpected EOF, expected {} more bytes. The file might be corrupted"},
    {"says": "unexpected EOF. The file might be corrupted"},
    {"says": "The file might be corrupted", "in": "exception"},
    {"says": "storage has wrong byte size: expected", "in": "exception"},
    {"says": "storage has wrong size: expected", "in": "exception"},
    {
        "says": "Ran out of input",
        "in": "exception",
        "with": ("torch/serialization", "torch.load", "torch\\serialization", "load_state_dict"),
    },
    {"says": "Consistency check failed: file should be of size {want} but has size {have}"},
    {"says": "Unable to load weights from pytorch checkpoint file for"},
    {"says": "Unable to load weights from checkpoint file"},
    {"says": "could not parse ModelProto from"},
    {"says": "Internal: could not parse ModelProto"},
    {"says": "ParseFromArray(serialized.data(), serialized.size())"},
    {"says": "expected value at line 1 column 1", "in": "exception", "with": ("okenizer", "from_file")},
    {"says": "file not found in archive", "in": "exception"},
    {"says": "does not appear to have a file named {file}-of-", "in": "exception"},
    {"says": "invalid magic", "with": ("gguf", "GGUF", "ggml")},
    {"says": "GGUF magic invalid"},
    {"says": "No such file or directory: {}model-0{}-of-0", "in": "exception"},
    {"says": "failed to load model: tensor {} data is not within the file bounds"},
    {"says": "tensor '{}' data is not within the file bounds"},
    {"says": "checkpoint file is corrupt", "in": "exception"},
    {"says": "hash does not match{}expected", "in": "exception", "as": "clue"},
    {"says": "pickle data was truncated", "in": "exception"},
    {"says": "Bad CRC-32 for file", "in": "exception"},
    {"says": "SafetensorError: HeaderTooLarge"},
    {"says": "SafetensorError: Invalid"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
