// SPDX-License-Identifier: Apache-2.0
// What may be said on the command line, and what does it mean?
#include "options.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "check.hpp"

namespace train {
namespace {

struct Choice {
  const char *name;
  int value;
};
constexpr Choice placements[] = {{"single", 0}, {"ddp", 0}, {"zero1", 0}, {"slices", 0}, {"alltoall", 0}, {"owner", 0}};
const Choice optimizers[] = {{mxs_rule_name(MXS_RULE_MUON), MXS_RULE_MUON},
                             {mxs_rule_name(MXS_RULE_SHAMPOO), MXS_RULE_SHAMPOO},
                             {mxs_rule_name(MXS_RULE_SOAP), MXS_RULE_SOAP},
                             {mxs_rule_name(MXS_RULE_ADAMW), MXS_RULE_ADAMW}};
const Choice dtypes[] = {{mxs_dtype_name(MXS_BF16), MXS_BF16}, {mxs_dtype_name(MXS_F32), MXS_F32}};
constexpr Choice releases[] = {{"free", MXS_FREE}, {"auto", MXS_AUTO}, {"pin", MXS_PIN}};
constexpr Choice gathers[] = {
    {"auto", MXS_GATHER_AUTO}, {"copy", MXS_GATHER_BY_COPY}, {"reference", MXS_GATHER_BY_REFERENCE}};

constexpr Choice memories[] = {{"host", MXS_HOST}, {"cuda", MXS_CUDA}};

template <size_t count>
int choose(const char *flag, const std::string &text, const Choice (&choices)[count]) {
  std::string known;
  for (const Choice &choice : choices) {
    if (text == choice.name) return choice.value;
    known += std::string(known.empty() ? "" : ", ") + choice.name;
  }
  throw std::runtime_error(std::string(flag) + " " + text + " is none of: " + known);
}

int64_t whole_number(const char *flag, const std::string &text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw std::runtime_error(std::string(flag) + " " + text + " is no whole number from " + std::to_string(least) +
                             " to " + std::to_string(most));
  return value;
}

float real_number(const char *flag, const std::string &text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    throw std::runtime_error(std::string(flag) + " " + text + " is no number of at least 0");
  return value;
}

struct Flag {
  const char *name, *argument, *help;  // argument nullptr: takes none
  std::function<void(Options *, const std::string &)> read;
};

Flag number(const char *name, const char *help, int64_t least, int64_t most,
            std::function<int64_t &(Options *)> field) {
  return {name, "N", help, [=](Options *options, const std::string &text) {
            field(options) = whole_number(name, text, least, most);
          }};
}

Flag real(const char *name, const char *help, float Options::*field) {
  return {name, "X", help, [=](Options *options, const std::string &text) {
            options->*field = real_number(name, text);
          }};
}

Flag word(const char *name, const char *argument, const char *help, std::string Options::*field) {
  return {name, argument, help, [=](Options *options, const std::string &text) { options->*field = text; }};
}

template <class Part>
Flag word(const char *name, const char *argument, const char *help, Part Options::*part, std::string Part::*field) {
  return {name, argument, help,
          [=](Options *options, const std::string &text) { options->*part.*field = text; }};
}

// Ranks are those of the start; steps count from 1.
Options::Death read_death(const std::string &text) {
  const size_t at = text.find('@');
  if (at == std::string::npos) throw std::runtime_error("--die " + text + " is no RANK@STEP, such as 2@7");
  return {whole_number("--die", text.substr(0, at), 0, 4095),
          whole_number("--die", text.substr(at + 1), 1, 1000000)};
}

std::vector<Flag> run_flags() {
  return {
      {"--placement", "NAME", "single, ddp, zero1, slices, alltoall or owner (default)",
       [](Options *o, const std::string &text) {
         choose("--placement", text, placements);
         o->placement = text;
       }},
      number("--steps", "training steps (40)", 1, 1000000, [](Options *o) -> int64_t & { return o->steps; }),
      number("--micro-batches", "of a step, over all ranks, which must divide it but for owner (12; at most 64)", 1, 64,
             [](Options *o) -> int64_t & { return o->micro_batches; }),
      {"--rank-order", nullptr, "gradients are summed in rank order: equal bits for every number of ranks",
       [](Options *o, const std::string &) { o->placing.rank_order = true; }},
      {"--reshard", "MODE", "owner: after forward, free (default), auto or pin",
       [](Options *o, const std::string &text) { o->placing.release = choose("--reshard", text, releases); }},
      {"--gather", "MODE", "owner: auto (default), copy or reference",
       [](Options *o, const std::string &text) { o->placing.gather = choose("--gather", text, gathers); }},
      {"--memory", "KIND", "owner: of units and optimizer, host (default) or cuda; the network computes on the host",
       [](Options *o, const std::string &text) { o->placing.memory = choose("--memory", text, memories); }},
      {"--threads", "N", "compute threads of each rank (1)",
       [](Options *o, const std::string &text) {
         o->placing.thread_count = static_cast<int>(whole_number("--threads", text, 1, 1024));
       }},
      {"--seed", "N", "of weights and batches (1)",
       [](Options *o, const std::string &text) {
         o->placing.seed = static_cast<uint64_t>(whole_number("--seed", text, 0, INT64_MAX));
       }},
      word("--text", "FILE", "to train on; default: the licences in /usr/share/common-licenses", &Options::text_path),
      word("--json", "FILE", "write the figures of this run", &Options::json_path),
      word("--save-weights", "FILE", "write all masters, fp32, tensors in the order of their names",
           &Options::weights_path),
      word("--save", "DIR", "owner: save a checkpoint there after the last step", &Options::checkpoints,
           &CheckpointOptions::path),
      number("--save-every", "steps, and after the last one", 1, 1000000,
             [](Options *o) -> int64_t & { return o->checkpoints.every; }),
      number("--keep", "of the newest checkpoints; older ones are deleted (all stay)", 1, 1000000,
             [](Options *o) -> int64_t & { return o->checkpoints.keep; }),
      {"--save-async", nullptr, "go on training while a checkpoint is written",
       [](Options *o, const std::string &) { o->checkpoints.beside = true; }},
      word("--resume", "DIR", "owner: go on from this checkpoint, or from the newest of a folder, up to --steps in all",
           &Options::checkpoints, &CheckpointOptions::resume_path),
      {"--backup", nullptr,
       "owner: each rank's weights and state are kept on another, too: when a rank dies the others go on (start it by "
       "mxs run --keep-going)",
       [](Options *o, const std::string &) { o->placing.backup = true; }},
      {"--die", "RANK@STEP", "that rank kills itself in that step, at a moment that --seed draws; may be given again",
       [](Options *o, const std::string &text) { o->deaths.push_back(read_death(text)); }},
      {"--quiet", nullptr, "no progress, no summary", [](Options *o, const std::string &) { o->quiet = true; }},
      {"--check", nullptr, "look at these words, train nothing: status 2 and a sentence if they don't fit",
       [](Options *o, const std::string &) { o->check = true; }},
      {"--help", nullptr, "this", [](Options *o, const std::string &) { o->help = true; }},
  };
}

std::vector<Flag> model_flags() {
  return {
      number("--layers", "blocks (4)", 1, 1000, [](Options *o) -> int64_t & { return o->shape.layers; }),
      number("--width", "of the residual stream (256)", 2, 65536,
             [](Options *o) -> int64_t & { return o->shape.width; }),
      number("--heads", "of attention (4)", 1, 65536, [](Options *o) -> int64_t & { return o->shape.heads; }),
      number("--context", "tokens of a sequence (128)", 1, 65536,
             [](Options *o) -> int64_t & { return o->shape.context; }),
      number("--sequences", "of a micro-batch (1)", 1, 4096,
             [](Options *o) -> int64_t & { return o->shape.sequences; }),
      {"--tied", nullptr, "the head's weight is the token embedding",
       [](Options *o, const std::string &) { o->shape.tied = true; }},
      {"--dtype", "NAME", "of weights, activations' products and gradients: bf16 (default) or f32",
       [](Options *o, const std::string &text) {
         o->shape.dtype = o->shape.gradient_dtype = choose("--dtype", text, dtypes);
       }},
      {"--gradient-dtype", "NAME", "if another than --dtype, which must come first: bf16 or f32",
       [](Options *o, const std::string &text) { o->shape.gradient_dtype = choose("--gradient-dtype", text, dtypes); }},
      {"--optimizer", "NAME", "of hidden matrices: muon (default), shampoo, soap or adamw; the rest has adamw",
       [](Options *o, const std::string &text) { o->shape.matrix_rule = choose("--optimizer", text, optimizers); }},
      {"--preset", "NAME",
       "whose: torch-muon, keller-jordan, moonlight, ... (our default); lr and weight decay stay ours",
       [](Options *o, const std::string &text) {
         check(mxs_preset_from_name(text.c_str(), &o->placing.preset), "--preset");
       }},
      real("--matrix-lr", "of hidden matrices (muon 0.02, others 0.003)", &Options::matrix_lr),
      real("--adamw-lr", "of embeddings, head and gains (0.003)", &Options::adamw_lr),
      real("--weight-decay", "of both (0.01)", &Options::weight_decay),
      real("--clip-norm", "largest norm of all gradients; 0: none (1)", &Options::clip_norm),
  };
}

std::vector<Flag> all_flags() {
  std::vector<Flag> flags = run_flags();
  for (Flag &flag : model_flags()) flags.push_back(std::move(flag));
  return flags;
}

void refuse_checkpoints(const Options &options) {
  const CheckpointOptions &asked = options.checkpoints;
  if (asked.path.empty() && (asked.every != 0 || asked.keep != 0 || asked.beside))
    throw std::runtime_error("--save-every, --keep and --save-async say how to save; --save DIR says where");
  if (options.placement != "owner" && !(asked.path.empty() && asked.resume_path.empty()))
    throw std::runtime_error("--placement " + options.placement +
                             " has no checkpoints: --save and --resume are for owner");
}

// Slices of a matrix have its momentum and its update, but neither its factors nor, here, another's momentum.
void refuse_bad_mixture(const Options &options) {
  const mxs_rule rule = options.shape.matrix_rule;
  const mxs_preset preset = options.placing.preset;
  const std::string optimizer = mxs_rule_name(rule);
  if (preset != MXS_PRESET_DEFAULT && mxs_preset_rule(preset) != rule)
    throw std::runtime_error(std::string("--preset ") + mxs_preset_name(preset) + " is none of --optimizer " +
                             optimizer + "'s");
  refuse_checkpoints(options);
  if (options.placing.backup && options.placement != "owner")
    throw std::runtime_error("--placement " + options.placement + " has no backup: --backup is for owner");
  if (options.placing.memory != MXS_HOST && options.placement != "owner")
    throw std::runtime_error("--placement " + options.placement + " is for host memory: --memory cuda is for owner");
  if (options.placement != "slices" && options.placement != "alltoall") return;
  if (rule == MXS_RULE_SHAMPOO || rule == MXS_RULE_SOAP)
    throw std::runtime_error("--placement " + options.placement + " cuts matrices into rows, and " + optimizer +
                             " wants whole ones: take single, ddp, zero1 or owner");
  if (preset != MXS_PRESET_DEFAULT && preset != MXS_PRESET_TORCH_MUON && preset != MXS_PRESET_TORCH_MUON_RMS &&
      preset != MXS_PRESET_KELLER_JORDAN)
    throw std::runtime_error("--placement " + options.placement + " averages momentum, which --preset " +
                             mxs_preset_name(preset) + " doesn't: take single, ddp, zero1 or owner");
}

}  // namespace

float matrix_lr(const Options &options) {
  if (options.matrix_lr > 0) return options.matrix_lr;
  return options.shape.matrix_rule == MXS_RULE_MUON ? 0.02f : 0.003f;
}

Options read_options(int argument_count, char **arguments) {
  const std::vector<Flag> flags = all_flags();
  Options options;
  for (int i = 1; i < argument_count; ++i) {
    const std::string argument = arguments[i];
    const Flag *found = nullptr;
    for (const Flag &flag : flags)
      if (argument == flag.name) found = &flag;
    if (found == nullptr) throw std::runtime_error("unknown option " + argument + "; --help shows those there are");
    if (found->argument == nullptr) {
      found->read(&options, "");
      continue;
    }
    if (++i == argument_count) throw std::runtime_error(argument + " wants a value: " + found->argument);
    found->read(&options, arguments[i]);
  }
  refuse_bad_mixture(options);
  return options;
}

std::string help_text() {
  std::string text = "mxs-train: trains a small GPT on bytes, with one of six placements of its weights\n"
                     "  mxs run -n 4 -- mxs-train --placement owner\n\n";
  for (const Flag &flag : all_flags()) {
    std::string line = std::string("  ") + flag.name + (flag.argument ? std::string(" ") + flag.argument : "");
    line.resize(std::max<size_t>(line.size() + 2, 26), ' ');
    text += line + flag.help + "\n";
  }
  return text;
}

}  // namespace train
