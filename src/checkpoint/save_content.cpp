// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save_content.hpp"

#include <algorithm>
#include <cinttypes>
#include <unordered_map>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "base/text.hpp"
#include "checkpoint/describe.hpp"
#include "matrixshard/version.h"
#include "model/safetensors.hpp"
#include "plan/saved.hpp"

namespace mxs {

namespace {

class Collector {
 public:
  Collector(const std::vector<Unit *> &units, const Optimizer *optimizer, const SaveSettings &settings,
            SaveContent *content)
      : units_(units), optimizer_(settings.weights_only ? nullptr : optimizer), settings_(settings),
        plan_(units[0]->plan()), rank_(units[0]->rank()), content_(*content) {}

  mxs_status collect(const Optimizer *optimizer) {
    content_.rank = rank_;
    content_.device = units_[0]->device();
    content_.user.assign(static_cast<const char *>(settings_.user), settings_.user_bytes);
    std::vector<FiledArray> model = describe_model(plan_, settings_.masters);
    mxs_status status = add_extras(&model);
    if (status != MXS_OK) return status;
    std::vector<FiledArray> state = describe_state_arrays();
    status = check_names(model, state);
    if (status != MXS_OK) return status;
    find_weights();
    status = take_files(file_model(std::move(model)));
    if (status == MXS_OK) status = take_files(file_optimizer(std::move(state)));
    if (status == MXS_OK && !spans_.empty()) status = unlike_plan(spans_.begin()->first);
    return status == MXS_OK && rank_ == 0 ? begin_manifest(optimizer) : status;
  }

 private:
  // Rank 0's, into its model file. The others only have to know that this file is there.
  mxs_status add_extras(std::vector<FiledArray> *arrays) {
    if (settings_.extras.empty()) return MXS_OK;
    if (rank_ != 0) {
      FiledArray placeholder;
      placeholder.number_bytes = 1;
      placeholder.kind = MXS_ARRAY_EXTRA;
      placeholder.pieces = {{0, 0, 0, {}}};
      arrays->push_back(std::move(placeholder));
      return MXS_OK;
    }
    for (size_t number = 0; number < settings_.extras.size(); ++number) {
      FiledArray array;
      const mxs_status status = describe_extra(settings_.extras[number], number, &array);
      if (status != MXS_OK) return status;
      if (array.bytes > 0)
        spans_[array.name] = {{static_cast<const std::byte *>(settings_.extras[number].data), array.bytes, false}};
      arrays->push_back(std::move(array));
    }
    return MXS_OK;
  }

  // Of this rank, as far as they are stepped. In an order that doesn't depend on that of the units.
  std::vector<const OptimizedPiece *> pieces_by_placement() const {
    std::vector<const OptimizedPiece *> pieces;
    for (const OptimizedPiece &piece : optimizer_->pieces())
      if (piece.stepper) pieces.push_back(&piece);
    std::sort(pieces.begin(), pieces.end(), [](const OptimizedPiece *a, const OptimizedPiece *b) {
      return a->owned->placement < b->owned->placement;
    });
    return pieces;
  }

  // All that has numbers for whole tensors, and what belongs to this rank's matrices.
  std::vector<FiledArray> describe_state_arrays() {
    if (settings_.weights_only) return {};
    std::function<const std::vector<StatePart> &(mxs_rule)> parts_of;
    if (optimizer_)
      parts_of = [this](mxs_rule rule) -> const std::vector<StatePart> & { return optimizer_->parts_of(rule); };
    std::vector<FiledArray> arrays = describe_optimizer(plan_, settings_.masters, parts_of, rank_);
    if (!optimizer_) return arrays;
    for (const OptimizedPiece *piece : pieces_by_placement()) {
      const std::string &tensor = plan_.tensors[static_cast<size_t>(piece->owned->tensor)].name;
      for (const StatePart &part : piece->stepper->state_parts()) {
        std::string name = std::string(tensor).append(1, '.').append(part.name);
        if (part.scope == StateScope::matrix) {
          arrays.push_back(describe_matrix_state(plan_, piece->owned->placement, part));
          name = arrays.back().name;
        }
        spans_[name].push_back({piece->state + part.offset, part.bytes, content_.device != nullptr});
      }
    }
    return arrays;
  }

  // Readers look for an array by its name, whichever file it is in.
  static mxs_status check_names(const std::vector<FiledArray> &model, const std::vector<FiledArray> &state) {
    std::unordered_map<std::string_view, const FiledArray *> known;
    for (const auto *arrays : {&model, &state})
      for (const FiledArray &array : *arrays) {
        if (array.name.empty()) continue;  // other ranks' extras
        if (array.name == "__metadata__" || !is_utf8(array.name))
          return set_error(MXS_INVALID_ARGUMENT, "\"%.200s\" can't be the name of a tensor in a checkpoint: %s",
                           array.name.c_str(), is_utf8(array.name) ? "safetensors have it for themselves"
                                                                   : "it is not UTF-8");
        const auto [place, is_new] = known.emplace(array.name, &array);
        if (!is_new)
          return set_error(MXS_INVALID_ARGUMENT,
                           "two arrays of the checkpoint would be called \"%.200s\": one of tensor \"%.150s\", one of "
                           "\"%.150s\"; give the tensor another name",
                           array.name.c_str(), place->second->tensor.c_str(), array.tensor.c_str());
      }
    return MXS_OK;
  }

  void find_weights() {
    const bool has_masters = !settings_.masters && !settings_.weights_only;  // beside the model
    const bool on_device = content_.device != nullptr;
    for (const Unit *unit : units_)
      for (const OwnedPlacement &owned : unit->owned()) {
        const PlannedTensor &tensor = plan_.tensors[static_cast<size_t>(owned.tensor)];
        const SaveSpan weights = {static_cast<const std::byte *>(owned.weights),
                                  owned.element_count * dtype_bytes(owned.dtype), on_device};
        const SaveSpan master = {static_cast<const std::byte *>(owned.master),
                                 owned.element_count * dtype_bytes(owned.master_dtype), on_device};
        spans_[tensor.name].push_back(settings_.masters && owned.master ? master : weights);
        if (owned.master && has_masters) spans_[tensor.name + ".master"].push_back(master);
      }
  }

  mxs_status take_files(std::vector<FiledFile> files) {
    for (FiledFile &file : files) {
      if (file.header.size() > safetensors_header_bytes_max)
        return set_error(MXS_NOT_BUILT, "the header of %s has %zu bytes; safetensors have at most %" PRIu64,
                         file.name.c_str(), file.header.size(), safetensors_header_bytes_max);
      if (rank_ == 0) content_.common.push_back(file.name);
      OwnFile own;
      const mxs_status status = take_pieces(file, &own);
      if (status != MXS_OK) return status;
      if (own.pieces.empty()) continue;
      if (file.first_rank == rank_) content_.bytes += file.data_offset;
      own.filed = std::move(file);
      content_.files.push_back(std::move(own));
    }
    return MXS_OK;
  }

  // Spans of an array come in the order of its placements, and no placement is in two pieces.
  mxs_status take_pieces(const FiledFile &file, OwnFile *own) {
    for (size_t number = 0; number < file.arrays.size(); ++number) {
      const FiledArray &array = file.arrays[number];
      std::vector<SaveSpan> spans;
      if (const auto found = spans_.find(array.name); found != spans_.end()) {
        spans = std::move(found->second);
        spans_.erase(found);
      }
      size_t next = 0;
      for (size_t piece = 0; piece < array.pieces.size(); ++piece) {
        if (array.pieces[piece].rank != rank_) continue;
        OwnPiece taken = {number, piece, {}};
        uint64_t left = array.pieces[piece].count * array.number_bytes;
        content_.bytes += left;
        for (; left > 0 && next < spans.size() && spans[next].bytes <= left; left -= spans[next++].bytes)
          taken.spans.push_back(spans[next]);
        if (left > 0) return unlike_plan(array.name);
        own->pieces.push_back(std::move(taken));
      }
      if (next < spans.size()) return unlike_plan(array.name);
    }
    return MXS_OK;
  }

  mxs_status unlike_plan(const std::string &array) const {
    return set_error(MXS_INTERNAL, "of array \"%.200s\" rank %d has more or fewer bytes than the plan says",
                     array.c_str(), rank_);
  }

  mxs_status begin_manifest(const Optimizer *optimizer) {
    Manifest &manifest = content_.manifest;
    manifest.version = mxs_version_text();
    manifest.rank_count = plan_.topology.rank_count();
    manifest.masters = settings_.masters;
    manifest.has_state = optimizer_ != nullptr;
    if (optimizer) {
      manifest.step_number = optimizer->step_number();
      for (size_t group = 0; optimizer->has_values() && group < optimizer->values().size(); ++group) {
        manifest.groups.emplace_back();
        if (optimizer->group_is_used(group)) manifest.groups.back() = optimizer->values()[group];
      }
    }
    if (optimizer_) {
      manifest.rounding = optimizer_->options().rounding;
      list_rules(&manifest.rules);
    }
    return plan_to_json(plan_, &manifest.plan);
  }

  void list_rules(std::vector<ManifestRule> *rules) const {
    const OptionHashes &options = optimizer_->options();
    const struct {
      mxs_rule rule;
      uint64_t options;
    } known[] = {{MXS_RULE_MUON, options.muon},
                 {MXS_RULE_ADAMW, options.adamw},
                 {MXS_RULE_SHAMPOO, options.shampoo},
                 {MXS_RULE_SOAP, options.soap}};
    for (const auto &each : known)
      if (std::any_of(plan_.tensors.begin(), plan_.tensors.end(), [&](const PlannedTensor &tensor) {
            return has_state(tensor) && tensor.rule == each.rule;
          }))
        rules->push_back({each.rule, optimizer_->preset_of(each.rule), each.options});
  }

  const std::vector<Unit *> &units_;
  const Optimizer *const optimizer_;  // nullptr: no state is saved
  const SaveSettings &settings_;
  const Plan &plan_;
  const int rank_;
  SaveContent &content_;
  std::unordered_map<std::string, std::vector<SaveSpan>> spans_;  // by array: what this rank has of it
};

}  // namespace

mxs_status collect_content(const std::vector<Unit *> &units, const Optimizer *optimizer, const SaveSettings &settings,
                           SaveContent *content) {
  return Collector(units, optimizer, settings, content).collect(optimizer);
}

}  // namespace mxs
