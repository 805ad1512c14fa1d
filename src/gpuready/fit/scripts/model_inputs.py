"""Which class of transformers a framework would load for a config, and the inputs of that class. Runs in the target
environment.
"""

import inspect

import torch
import transformers
from transformers.models.auto import modeling_auto

CLASS_TABLES = (
    "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MASKED_LM", "CAUSAL_LM", "CTC", "IMAGE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "MASKED_IMAGE_MODELING", "PRETRAINING",
    "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "OBJECT_DETECTION", "DEPTH_ESTIMATION", "MULTIMODAL_LM", "TIME_SERIES_PREDICTION",
    "UNIVERSAL_SEGMENTATION", "ZERO_SHOT_IMAGE_CLASSIFICATION", "TEXT_TO_SPECTROGRAM",
)  # fmt: skip
"""transformers' tables of classes with a loss, in the order in which they are asked."""
MAX_LAYERS = 2000


class Refusal(Exception):
    """Why a model is not traced, in one sentence."""


def read_config(fields):
    """Return the config object of a config.json; code that it brings is never run."""
    fields = dict(fields)
    if find_key(fields, "auto_map"):
        raise Refusal("its config brings code of its own (auto_map), which is not run here")
    kind = fields.pop("model_type", None)
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise Refusal(f"transformers {transformers.__version__} has no model type {str(kind)[:60]!r}")
    for name, value in walk_numbers(fields):
        if name.endswith(("layers", "n_layer")) and value > MAX_LAYERS:
            raise Refusal(f"its config has {value} layers ({name}): more than {MAX_LAYERS} are not traced")
    fields.pop("quantization_config", None)  # what is loaded is decided by the job
    try:
        return transformers.AutoConfig.for_model(kind, **fields)
    except Exception as error:
        raise Refusal(f"its config is not one of {kind}: {last_line(error)}") from None


def last_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:200] if lines else ''}"


def find_key(fields, key):
    if isinstance(fields, dict):
        return bool(fields.get(key)) or any(find_key(value, key) for value in fields.values())
    return isinstance(fields, list) and any(find_key(value, key) for value in fields)


def walk_numbers(fields, depth=0):
    """Yield every number of a config with its name."""
    for name, value in fields.items():
        if isinstance(value, dict) and depth < 4:
            yield from walk_numbers(value, depth + 1)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, value


def choose_class(config, task):
    """Return the class that is loaded: the one that the config names, else the first table that has the type."""
    named = next(iter(config.architectures or ()), None)
    if isinstance(named, str):
        found = getattr(transformers, named, None)
        if found is None:
            raise Refusal(
                f"transformers {transformers.__version__} has no class {named[:60]!r}, which its config names"
            )
        if can_play(found, task):
            return found
    for table in CLASS_TABLES:
        names = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES", {}).get(config.model_type)
        for name in (names,) if isinstance(names, str) else names or ():
            found = getattr(transformers, name, None)
            if found is not None and can_play(found, task):
                return found
    what = "generates text" if task == "generate" else "computes a loss"
    raise Refusal(f"transformers {transformers.__version__} has no class of the type {config.model_type} that {what}")


def can_play(found, task):
    """Whether a class has a loss (or generates)."""
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        return False
    if task == "generate":
        return bool(getattr(found, "can_generate", lambda: False)())
    parameters = inspect.signature(found.forward).parameters
    return any(name in parameters for name in LOSS_INPUTS)


LOSS_INPUTS = (
    "labels",
    "start_positions",
    "next_sentence_label",
    "bool_masked_pos",
    "mask_labels",
    "return_loss",
    "future_values",
)


class ModelInputs:
    """The tensors that one step of a class takes."""

    def __init__(self, model, config, job, known):
        self.model, self.config, self.job, self.known = model, config, job, known
        self.text = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.parameters = inspect.signature(model.forward).parameters
        self.class_name = type(model).__name__
        self.rows, self.seq = job["micro_batch"] * (2 if job.get("dpo") else 1), job["seq"]
        self.notes = []

    def make(self):
        """Return the inputs by name, without the labels."""
        main = self.model.main_input_name
        makers = {"pixel_values": self.pictures, "input_features": self.features, "input_values": self.samples}
        made = {}
        if main in makers:
            made[main] = makers[main]()
        elif main == "pixel_values_videos":
            made[main] = self.videos()
        elif main == "input_ids" or "input_ids" in self.parameters:
            made["input_ids"] = self.tokens()
            if self.job.get("padded"):
                made["attention_mask"] = self.padding_mask()
            if "pixel_values" in self.parameters:
                made |= self.beside_text()
        else:
            raise Refusal(f"{self.class_name} takes {main}, and no such input is made here")
        return made

    def tokens(self, rows=None, seq=None):
        """Ids that are no special token: every row the same count of each."""
        size = max(int(getattr(self.text, "vocab_size", 0) or getattr(self.config, "vocab_size", 0) or 2), 2)
        special = {v for one in (self.config, self.text) for k, v in vars(one).items() if is_token_id(k, v)}
        plain = [n for n in range(min(size, 512)) if n not in special][:64] or [0]
        shape = rows or self.rows, seq or self.seq
        value = torch.tensor(plain)[torch.arange(shape[0] * shape[1]) % len(plain)].view(shape)
        return self.known.send(value)

    def padding_mask(self):
        """Ones, but for the last eighth of the first row."""
        mask = torch.ones((self.rows, self.seq), dtype=torch.long)
        mask[0, self.seq - self.seq // 8 :] = 0
        return self.known.send(mask)

    def pictures(self):
        height, width = self.picture_size()
        channels = find_field(self.config, "num_channels", "in_channels", "in_chans") or 3
        return self.floats((self.rows, channels, height, width))

    def videos(self):
        height, width = self.picture_size()
        frames = find_field(self.config, "num_frames", "frames_per_clip") or 16
        return self.floats((self.rows, frames, find_field(self.config, "num_channels") or 3, height, width))

    def picture_size(self):
        size = find_field(self.config, "image_size", "img_size", "input_size", "crop_size") or 224
        if isinstance(size, dict):
            size = (size.get("height", 224), size.get("width", 224))
        return tuple(size)[:2] if isinstance(size, (list, tuple)) else (size, size)

    def features(self):
        """Log-mel frames: as long as the encoder's table of positions, where it has one."""
        bins = (
            find_field(self.config, "num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels", "input_dim")
            or 80
        )
        places = find_field(self.config, "max_source_positions")
        if places and "Whisper" in self.class_name:
            return self.floats((self.rows, bins, 2 * places))
        return self.floats((self.rows, min(self.seq, places or self.seq), bins))

    def samples(self):
        """A waveform of ``seq`` samples."""
        if find_field(self.config, "max_length") and find_field(self.config, "num_mel_bins"):  # a spectrogram
            return self.floats(
                (self.rows, find_field(self.config, "max_length"), find_field(self.config, "num_mel_bins"))
            )
        self.notes.append(f"the sound is {self.seq} samples long (--seq N)")
        return self.floats((self.rows, self.seq))

    def beside_text(self):
        """Pictures of a class that takes text and pictures: text alone, unless it needs them."""
        self.notes.append("text alone was played: a batch with pictures needs more")
        return {}

    def floats(self, shape):
        return torch.empty(shape, dtype=torch.float32, device="meta").to(self.model.dtype)

    def takes_decoder_text(self):
        return "decoder_input_ids" in self.parameters

    def labels(self, inputs):
        """Return what the loss takes."""
        name = self.class_name
        classes = max(getattr(self.config, "num_labels", 2) or 2, 1)
        one_each = self.known.send(torch.zeros(self.rows, dtype=torch.long))
        if "start_positions" in self.parameters and "labels" not in self.parameters:
            return {
                "start_positions": one_each,
                "end_positions": self.known.send(torch.zeros(self.rows, dtype=torch.long)),
            }
        if "labels" not in self.parameters:
            return self.other_labels(inputs)
        if name.endswith(
            ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification", "ForVideoClassification")
        ):
            return {"labels": one_each} if classes > 1 else {"labels": self.floats((self.rows,))}
        if name.endswith("ForSemanticSegmentation"):
            return {"labels": self.known.send(torch.zeros((self.rows, *self.picture_size()), dtype=torch.long))}
        if name.endswith(("ForMultipleChoice", "ForNextSentencePrediction")):
            return {"labels": one_each}
        if name.endswith("ForTokenClassification"):
            return {"labels": self.known.send(torch.zeros((self.rows, self.seq), dtype=torch.long))}
        if name.endswith("ForCTC"):
            return {"labels": self.tokens(seq=max(1, self.seq // 640))}
        made = {"labels": inputs["input_ids"] if "input_ids" in inputs else self.tokens()}
        if "next_sentence_label" in self.parameters:
            made["next_sentence_label"] = one_each
        return made

    def other_labels(self, inputs):
        if "return_loss" in self.parameters:
            return {"return_loss": True}
        raise Refusal(f"{self.class_name} takes none of the labels that are made here")


def is_token_id(name, value):
    return (name.endswith(("_token_id", "_token_index"))) and isinstance(value, int)


def find_field(config, *names):
    """Return the first of these fields, of the config or of a config inside it."""
    inner = [v for v in vars(config).values() if isinstance(v, transformers.PretrainedConfig)]
    for one in (config, *inner):
        for name in names:
            value = getattr(one, name, None)
            if value:
                return value
    return None
