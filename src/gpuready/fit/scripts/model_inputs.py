"""Which class of transformers a framework would load for a config, and the inputs of that class. Runs in the target
environment.
"""

import inspect
import typing

import torch
import transformers
from known_values import Refusal
from transformers.models.auto import modeling_auto

CLASS_TABLES = (
    "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MASKED_LM", "CAUSAL_LM", "CTC", "IMAGE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "MASKED_IMAGE_MODELING", "PRETRAINING",
    "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "OBJECT_DETECTION", "DEPTH_ESTIMATION", "MULTIMODAL_LM", "TIME_SERIES_PREDICTION",
    "UNIVERSAL_SEGMENTATION", "ZERO_SHOT_IMAGE_CLASSIFICATION", "TEXT_TO_SPECTROGRAM", "RETRIEVAL",
)  # fmt: skip
"""transformers' tables of classes with a loss, in the order in which they are asked."""
MAX_LAYERS = 2000
BIN_FIELDS = (
    "feature_projection_input_dim", "input_dim", "num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels",
)  # fmt: skip
SHORTEST_SOUND, SECOND, SAMPLES_PER_LABEL = 4000, 16000, 640  # samples


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
        config = transformers.AutoConfig.for_model(kind, **fields)
    except Exception as error:
        raise Refusal(f"its config is not one of {kind}: {last_line(error)}") from None
    keep_all_layers(config)
    return config


def keep_all_layers(config):
    """Play every layer: sooner or later a step comes in which layerdrop skips none."""
    for name, value in list(vars(config).items()):
        if name.endswith("layerdrop") and value:
            setattr(config, name, 0.0)
        elif isinstance(value, transformers.PretrainedConfig):
            keep_all_layers(value)


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
        if can_play(found, task) or (task == "train" and returns_loss(found)):
            return found
    for table in CLASS_TABLES:
        names = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES", {}).get(config.model_type)
        for name in (names,) if isinstance(names, str) else names or ():
            found = getattr(transformers, name, None)
            if found is not None and can_play(found, task):
                return found
    name = modeling_auto.MODEL_MAPPING_NAMES.get(config.model_type)
    found = getattr(transformers, name, None) if isinstance(name, str) else None
    if task == "train" and found is not None:
        return found
    what = "generates text" if task == "generate" else "can be trained"
    raise Refusal(f"transformers {transformers.__version__} has no class of the type {config.model_type} that {what}")


def note_missing_loader(config, found):
    """Say that trainers of language models, which load by ``AutoModelForCausalLM``, do not find this class."""
    if (
        not found.__name__.endswith("ForCausalLM")
        or config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    ):
        return []
    version = transformers.__version__
    return [
        f"AutoModelForCausalLM of transformers {version} does not load {config.model_type}: load {found.__name__} by its name"
    ]


def can_play(found, task):
    """Whether a class has a loss (or generates)."""
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        return False
    if task == "generate":
        return bool(getattr(found, "can_generate", lambda: False)())
    parameters = inspect.signature(found.forward).parameters
    return any(name in parameters for name in LOSS_INPUTS)


def returns_loss(found):
    """Whether a class computes a loss from its inputs alone: its outputs have one (a masked autoencoder)."""
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        return False
    said = inspect.signature(found.forward).return_annotation
    return any("loss" in getattr(one, "__dataclass_fields__", ()) for one in typing.get_args(said) or (said,))


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
    """The tensors that one step of a class takes. ``variant`` is main, everything, or turned: time before bins."""

    def __init__(self, model, config, job, known, variant="main"):
        self.model, self.config, self.job, self.known, self.variant = model, config, job, known, variant
        self.text = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.parameters = inspect.signature(model.forward).parameters
        self.class_name = type(model).__name__
        self.rows, self.seq = job["micro_batch"] * (2 if job.get("dpo") else 1), job["seq"]
        self.notes = []
        for one in {id(config): config, id(self.text): self.text}.values():
            for name in ("decoder_start_token_id", "pad_token_id", "bos_token_id"):
                if getattr(one, name, None) is None:  # a user's tokenizer sets it
                    setattr(one, name, 0)

    def make(self):
        """Return the inputs by name, without the labels: those of the main input, or of every known kind."""
        makers = {
            "input_ids": self.tokens, "pixel_values": self.pictures, "input_features": self.features, "input_values": self.samples,
            "pixel_values_videos": self.videos, "pixel_values_images": self.pictures, "bool_masked_pos": self.masked_patches,
            "bbox": self.boxes, "past_values": self.series,
        }  # fmt: skip
        if "grid_thw" in self.parameters:
            return self.patches()
        main = self.model.main_input_name
        main = main[0] if isinstance(main, (list, tuple)) else main
        if main not in self.parameters and main not in makers:
            main = next((n for n in makers if n in self.parameters), main)
        if main not in makers:
            raise Refusal(f"{self.class_name} takes {main}, and no such input is made here")
        made = {main: makers[main]()}
        everything = self.variant == "everything" or "return_loss" in self.parameters
        for name, maker in makers.items():
            if everything and name in self.parameters and name not in made:
                made[name] = maker()
        if everything and main in ("input_features", "input_values"):
            made |= self.sound_masks(made[main])
        made |= self.required_inputs(made, makers)
        if "input_ids" in made and self.job.get("padded"):
            made["attention_mask"] = self.padding_mask()
        elif "input_ids" in made and self.job.get("mask") and "attention_mask" in self.parameters:
            made["attention_mask"] = self.known.send(torch.ones((self.rows, self.seq), dtype=torch.long))
        if main == "input_ids" and len(made) == 1:
            others = [name for name in ("pixel_values", "input_features", "input_values") if name in self.parameters]
            self.notes += ["text alone was played: pictures or sound in a batch need more"] * bool(others)
        return made

    def tokens(self, rows=None, seq=None):
        """Ids that are no special token: every row the same count of each."""
        size = max(int(getattr(self.text, "vocab_size", 0) or getattr(self.config, "vocab_size", 0) or 2), 2)
        special = {v for one in (self.config, self.text) for k, v in vars(one).items() if is_token_id(k, v)}
        plain = [n for n in range(min(size, 512)) if n not in special][:64] or [0]
        shape = rows or self.rows, seq or self.seq
        value = torch.tensor(plain)[torch.arange(shape[0] * shape[1]) % len(plain)].view(shape)
        return self.known.send(value)

    def required_inputs(self, made, makers):
        """Inputs without a default that are not made yet: by their name, or by how it ends."""
        found = {}
        for name, parameter in self.parameters.items():
            if (
                parameter.default is not parameter.empty
                or parameter.kind != parameter.POSITIONAL_OR_KEYWORD
                or name in made
            ):
                continue
            ends = [maker for known, maker in makers.items() if name == known or name.endswith(f"_{known}")]
            ends += [self.tokens] if name.endswith("_inputs") else []
            if ends:
                found[name] = ends[0]()
            elif name.endswith("mask") and "input_features" in made:
                found |= {k: v for k, v in self.sound_masks(made["input_features"]).items() if k == name}
        return found

    def follow_tokens(self, ids, length):
        """What transformers' generate() gives beside the tokens: a mask of all so far, and the positions of each row."""
        made = {}
        if "attention_mask" in self.parameters:
            made["attention_mask"] = self.known.send(torch.ones((len(ids), length), dtype=torch.long))
        if "position_ids" in self.parameters:
            row = torch.arange(length - ids.shape[1], length)
            made["position_ids"] = self.known.send(row.expand(len(ids), -1).contiguous())
        return made

    def padding_mask(self):
        """Ones, but for the last eighth of the first row."""
        mask = torch.ones((self.rows, self.seq), dtype=torch.long)
        mask[0, self.seq - self.seq // 8 :] = 0
        return self.known.send(mask)

    def boxes(self):
        return self.known.send(torch.zeros((self.rows, self.seq, 4), dtype=torch.long))

    def masked_patches(self):
        """Half of a picture's patches are masked."""
        height, width = self.picture_size()
        patch = find_field(self.config, "patch_size") or 16
        patch = patch[-1] if isinstance(patch, (list, tuple)) else patch
        count = (height // patch) * (width // patch)
        return self.known.send(torch.arange(self.rows * count).view(self.rows, count) % 2 == 0)

    def pictures(self):
        if find_field(self.config, "num_frames") and "Video" in self.class_name:
            return self.videos()
        height, width = self.picture_size()
        channels = find_field(self.config, "num_channels", "in_channels", "in_chans") or 3
        return self.floats((self.rows, channels, height, width))

    def patches(self):
        """A tower that takes the patches of all pictures in one row, and the grid of each."""
        names = [name for name in ("hidden_states", "pixel_values") if name in self.parameters]
        patch, merge = find_field(self.config, "patch_size") or 14, find_field(self.config, "spatial_merge_size") or 1
        patch = patch[0] if isinstance(patch, (list, tuple)) else patch
        side = max(1, self.picture_size()[0] // (patch * merge)) * merge
        values = (find_field(self.config, "num_channels", "in_channels", "in_chans") or 3) * patch * patch
        values *= find_field(self.config, "temporal_patch_size") or 1
        made = {"grid_thw": self.known.send(torch.tensor([[1, side, side]] * self.rows))}
        if "merge_sizes" in self.parameters:
            made["merge_sizes"] = self.known.send(torch.tensor([merge] * self.rows))
        return {name: self.floats((self.rows * side * side, values)) for name in names[:1]} | made

    def series(self, length="context_length"):
        """Numbers by time and channel."""
        channels = find_field(self.config, "num_input_channels", "input_size") or 1
        return self.floats((self.rows, find_field(self.config, length) or self.seq, channels))

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
        bins = find_field(self.config, *BIN_FIELDS) or 80
        places = find_field(self.config, "max_source_positions")
        by_time = find_field(self.config, "input_feat_per_channel", "feature_projection_input_dim")
        if places and self.variant == "main" and not by_time:
            return self.floats((self.rows, bins, 2 * places))  # two frames for each position
        window = 2 * (find_field(self.config, "n_window") or 1)
        size = -(-min(self.seq, places or self.seq) // window) * window
        return self.floats((self.rows, bins, size) if self.variant == "turned" else (self.rows, size, bins))

    def samples(self):
        """A waveform of ``seq`` samples."""
        if find_field(self.config, "max_length") and find_field(self.config, "num_mel_bins"):  # a spectrogram
            return self.floats(
                (self.rows, find_field(self.config, "max_length"), find_field(self.config, "num_mel_bins"))
            )
        size = self.seq if self.seq >= SHORTEST_SOUND else SECOND
        self.notes.append(f"the sound is {size:,} samples long (--seq N, from {SHORTEST_SOUND:,} on)")
        channels = find_field(self.config, "audio_channels")
        if channels or self.variant == "turned":
            return self.floats((self.rows, channels or 1, size))
        return self.floats((self.rows, size))

    def sound_masks(self, sound):
        """Masks of sound without silence: one value for each sample, or for each frame of bins."""
        bins = find_field(self.config, "num_mel_bins", "n_mels", "feature_size")
        frames = sound.shape[-1] if sound.dim() == 2 or sound.shape[-1] != bins else sound.shape[-2]
        names = ("attention_mask", "input_features_mask", "feature_attention_mask", "padding_mask")
        return {
            name: self.known.send(torch.ones((self.rows, frames), dtype=torch.long))
            for name in names
            if name in self.parameters
        }

    def floats(self, shape):
        return torch.empty(shape, dtype=torch.float32, device="meta").to(self.model.dtype)

    def takes_decoder_text(self):
        return "decoder_input_ids" in self.parameters

    def labels(self, inputs):
        """Return what the loss takes."""
        name, zeros = self.class_name, lambda *shape: self.known.send(torch.zeros(shape, dtype=torch.long))
        if "labels" not in self.parameters:
            return self.other_labels(zeros)
        classes = max(getattr(self.config, "num_labels", 2) or 2, 1)
        made = {}
        if name.endswith(CLASS_OF_ROW):
            made["labels"] = zeros(self.rows) if classes > 1 else self.floats((self.rows,))
        elif name.endswith("ForSemanticSegmentation"):
            made["labels"] = zeros(self.rows, *self.picture_size())
        elif name.endswith(("ForDepthEstimation", "ForNormalEstimation")):
            made["labels"] = self.floats((self.rows, *self.picture_size()))
        elif name.endswith(("ForObjectDetection", "ForSegmentation")):
            boxes = [{"class_labels": zeros(1), "boxes": self.floats((1, 4)) + 0.5} for _ in range(self.rows)]
            made["labels"] = boxes
        elif name.endswith("ForTokenClassification"):
            made["labels"] = zeros(self.rows, self.seq)
        elif name.endswith("ForCTC") or ("input_values" in inputs and self.seq >= SHORTEST_SOUND):
            made["labels"] = self.tokens(seq=max(1, self.seq // SAMPLES_PER_LABEL))
        elif "input_ids" in inputs:
            made["labels"] = inputs["input_ids"]
        else:
            made["labels"] = self.tokens() if self.decodes_text() else zeros(self.rows)
        if "next_sentence_label" in self.parameters:
            made["next_sentence_label"] = zeros(self.rows)
        return made

    def decodes_text(self):
        return self.takes_decoder_text() or self.class_name.endswith(
            ("ForConditionalGeneration", "ForCausalLM", "DecoderModel")
        )

    def other_labels(self, zeros):
        if "start_positions" in self.parameters:
            return {"start_positions": zeros(self.rows), "end_positions": zeros(self.rows)}
        if "return_loss" in self.parameters:
            return {"return_loss": True}
        if "future_values" in self.parameters:
            return {"future_values": self.series("prediction_length")}
        if "mask_labels" in self.parameters:
            masks = [self.known.send(torch.zeros((1, *self.picture_size()))) for _ in range(self.rows)]
            return {"mask_labels": masks, "class_labels": [zeros(1) for _ in range(self.rows)]}
        return {}


CLASS_OF_ROW = (
    "ForSequenceClassification", "ForImageClassification", "ForAudioClassification", "ForVideoClassification", "ForMultipleChoice",
    "ForNextSentencePrediction", "ForXVector",
)  # fmt: skip


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
