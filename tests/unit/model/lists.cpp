// SPDX-License-Identifier: Apache-2.0
// Lists in JSON and CSV: every field arrives, and what is wrong is named by entry or line.
#include "models.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

const char *const every_field =
    "{\"tensors\": [\n"
    " {\"name\": \"a\", \"shape\": [12, 8], \"dtype\": \"bf16\", \"master_dtype\": \"f32\",\n"
    "  \"gradient_dtype\": \"F32\",\n"
    "  \"rule\": \"soap\", \"unit\": \"first\", \"group\": 3, \"role\": \"matrix\", \"fixed_owner\": 0,\n"
    "  \"transposed\": true, \"whole_rows\": 24, \"whole_columns\": 8, \"block_columns\": [2, 6]},\n"
    " {\"name\": \"b\", \"shape\": [12, 8], \"unit\": \"second\", \"block_rows\": [4, 8],\n"
    "  \"dtype\": \"torch.float16\"},\n"
    " {\"name\": \"c\", \"shape\": [12, 8], \"unit\": \"second\", \"co_owners\": 2},\n"
    " {\"name\": \"d\", \"shape\": [12, 8], \"tied_to\": \"c\", \"role\": \"tied\"},\n"
    " {\"name\": \"e\", \"shape\": [], \"unit\": \"first\"}]}";

const char *const the_same_as_csv =
    "\xef\xbb\xbf"
    "name,shape,dtype,master_dtype,gradient_dtype,rule,unit,group,role,fixed_owner,transposed,whole_rows,"
    "whole_columns,block_columns,block_rows,co_owners,tied_to\r\n"
    "a,12x8,bf16,f32,F32,soap,first,3,matrix,0,true,24,8,2x6,,,\r\n"
    "\r\n"
    "\"b\" , 12 x 8 ,torch.float16,,,,second,,,,0,,,,\"4x8\",,\n"
    "c,12x8,,,,,\"second\",,,,,,,,,2,\n"
    "d,12x8,,,,,,,tied,,,,,,,,c\n"
    "e,1,,,,,first,,,,,,,,,,";

bool same(const LoadedTensor &a, const LoadedTensor &b) {
  return a.name == b.name && a.dtype == b.dtype && a.master_dtype == b.master_dtype &&
         a.gradient_dtype == b.gradient_dtype && a.rule == b.rule && a.unit == b.unit && a.group == b.group &&
         a.role == b.role && a.fixed_owner == b.fixed_owner && a.co_owners == b.co_owners && a.tied_to == b.tied_to &&
         a.block_rows == b.block_rows && a.block_columns == b.block_columns && a.transposed == b.transposed &&
         a.whole_rows == b.whole_rows && a.whole_columns == b.whole_columns;
}

std::string every_field_arrives_from_both() {
  LoadedModel list, csv;
  if (model_from_json(std::string_view(every_field), &list) != MXS_OK) return error_of("JSON");
  if (model_from_csv(the_same_as_csv, &csv) != MXS_OK) return error_of("CSV");
  const LoadedTensor &a = list.tensors[0];
  if (a.dtype != MXS_BF16 || a.master_dtype != MXS_F32 || a.gradient_dtype != MXS_F32 || a.rule != MXS_RULE_SOAP ||
      a.unit != 0 || a.group != 3 || a.role != MXS_ROLE_MATRIX || a.fixed_owner != MXS_FIXED_OWNER(0) ||
      !a.transposed || a.whole_rows != 24 || a.whole_columns != 8 || a.block_columns != std::vector<int64_t>{2, 6})
    return "a";
  const LoadedTensor &b = list.tensors[1];
  if (b.unit != 1 || b.block_rows != std::vector<int64_t>{4, 8} || b.dtype != MXS_F16 || b.fixed_owner != 0) return "b";
  if (list.tensors[2].co_owners != 2 || list.tensors[3].tied_to != "c" || list.tensors[3].unit != 1) return "c or d";
  if (list.unit_names != std::vector<std::string>{"first", "second"} || csv.unit_names != list.unit_names)
    return "names of units";
  if (list.tensors.size() != 5 || csv.tensors.size() != 5) return "the count";
  for (size_t index = 0; index < 5; ++index)
    if (!same(list.tensors[index], csv.tensors[index])) return "CSV differs: " + list.tensors[index].name;
  return list.tensors[0].shape == csv.tensors[0].shape && list.tensors[4].shape.empty() ? "" : "shapes";
}

std::string units_are_numbers_or_layers_too() {
  LoadedModel model;
  if (model_from_csv("name,shape,unit\na,2x2,2\nb,2x2,0\n", &model) != MXS_OK) return error_of("numbers");
  if (finish_model(ModelSettings(), &model) != MXS_OK) return error_of("finish");
  if (model.unit_names != std::vector<std::string>{"unit 0", "unit 1", "unit 2"} || model.tensors[0].unit != 2)
    return "numbers";
  if (model_from_csv("name,shape\nl.0.a,2x2\nl.1.a,2x2\nhead,2x2\n", &model) != MXS_OK) return error_of("layers");
  if (finish_model(ModelSettings(), &model) != MXS_OK) return error_of("finish");
  return model.unit_names == std::vector<std::string>{"l.0", "l.1", "head"} ? "" : "layers";
}

std::string bad_lists_name_the_tensor_and_the_field() {
  const auto entry = [](const std::string &members) {
    return "{\"tensors\": [{\"name\": \"good\", \"shape\": [1]}, {" + members + "}]}";
  };
  const struct {
    std::string text;
    std::vector<std::string> said;
  } bad[] = {
      {"{\"tensors\": 3}", {"list"}},
      {"{\"tensors\": [], \"more\": 1}", {"more", "not a known field"}},
      {"{\"matrixshard_plan\": 1, \"fingerprint\": \"0\", \"tensors\": []}", {"it is a plan", "--previous"}},
      {"{\"tensors\": [3]}", {"tensors[0]", "not an object"}},
      {entry("\"shape\": [1]"), {"tensors[1]", "name is missing"}},
      {entry("\"name\": \"w\""), {"tensors[1] \"w\"", "shape is missing"}},
      {entry("\"name\": \"\", \"shape\": [1]"), {"tensors[1]", "name is empty"}},
      {entry("\"name\": 7, \"shape\": [1]"), {"tensors[1]", "name is not a text"}},
      {entry("\"name\": \"a\\u0000b\", \"shape\": [1]"), {"tensors[1]", "zero byte"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"shap\": 1"), {"\"w\"", "shap is not a known field", "block_rows"}},
      {entry("\"name\": \"w\", \"name\": \"v\", \"shape\": [1]"), {"\"name\" stands twice"}},
      {entry("\"name\": \"w\", \"shape\": 8"), {"\"w\"", "shape is not a list"}},
      {entry("\"name\": \"w\", \"shape\": [8, -1]"), {"\"w\"", "shape has -1"}},
      {entry("\"name\": \"w\", \"shape\": [8, 1.5]"), {"\"w\"", "shape has 1.5"}},
      {entry("\"name\": \"w\", \"shape\": [18446744073709551615]"), {"\"w\"", "shape"}},
      {entry("\"name\": \"w\", \"shape\": [1,1,1,1,1,1,1,1,1]"), {"\"w\"", "shape has more than 8"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"dtype\": \"int8\""), {"\"w\"", "dtype is \"int8\"", "bf16"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"dtype\": 2"), {"\"w\"", "dtype is not a text"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"rule\": \"moun\""), {"\"w\"", "rule is \"moun\"", "muon"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"role\": \"x\""), {"\"w\"", "role is \"x\""}},
      {entry("\"name\": \"w\", \"shape\": [1], \"unit\": -1"), {"\"w\"", "unit is not a whole number"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"unit\": 1048576"), {"\"w\"", "unit is not a whole number"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"unit\": \"u\""), {"\"good\"", "no unit"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"group\": -1"), {"\"w\"", "group"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"fixed_owner\": -1"), {"\"w\"", "fixed_owner"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"fixed_owner\": 1048576"), {"\"w\"", "fixed_owner"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"transposed\": 1"), {"\"w\"", "transposed"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"block_rows\": [0]"), {"\"w\"", "block_rows has 0"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"block_columns\": 5"), {"\"w\"", "block_columns is not a list"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"whole_rows\": -5"), {"\"w\"", "whole_rows"}},
      {entry("\"name\": \"w\", \"shape\": [1], \"tied_to\": \"\""), {"\"w\"", "tied_to is empty"}},
      {"{\"tensors\": [{\"name\": \"a\", \"shape\": [1], \"unit\": 1},"
       " {\"name\": \"b\", \"shape\": [1], \"unit\": \"x\"}]}",
       {"\"b\"", "unit is a name"}},
      {"{\"tensors\": [{\"name\": \"a\", \"shape\": [1], \"unit\": \"x\"},"
       " {\"name\": \"b\", \"shape\": [1], \"unit\": 1}]}",
       {"\"b\"", "unit is a number"}},
  };
  for (const auto &each : bad) {
    LoadedModel model;
    const std::string complaint =
        expect(model_from_json(std::string_view(each.text), &model), MXS_INVALID_ARGUMENT, each.said);
    if (!complaint.empty()) return each.text + ": " + complaint;
    if (!model.tensors.empty()) return "the output was touched";
  }
  return "";
}

std::string bad_csv_names_the_line() {
  const std::string head = "name,shape,dtype,rule\n";
  const struct {
    std::string text;
    std::vector<std::string> said;
  } bad[] = {
      {"", {"line 1", "header"}},
      {"\n\n", {"line 1", "header"}},
      {"w,8x8\n", {"line 1", "\"w\" is not a known field"}},
      {"name,name,shape\n", {"line 1", "\"name\" stands there twice"}},
      {"name,rule\n", {"line 1", "no column \"shape\""}},
      {"\nshape\n", {"line 2", "no column \"name\""}},
      {head + "w,8x8,bf16\n", {"line 2", "3 cells", "4 columns"}},
      {head + "w,8x8,,,\n", {"line 2", "5 cells"}},
      {head + "w,8x8,,\n\n\nv,8by8,,\n", {"line 5", "shape has", "8by8"}},
      {head + "w,8x,,\n", {"line 2", "shape"}},
      {head + "w,-8,,\n", {"line 2", "shape has -8"}},
      {head + "w,99999999999999999999,,\n", {"line 2", "shape"}},
      {head + "w,,,\n", {"line 2", "shape is empty", "scalar"}},
      {head + ",8,,\n", {"line 2", "name is empty"}},
      {head + "w,8x8,int4,\n", {"line 2", "dtype is \"int4\""}},
      {head + "w,8x8,,mu\n", {"line 2", "rule is \"mu\""}},
      {head + "\"w,8x8,,\n", {"line 2", "not closed"}},
      {head + "v\"w,8x8,,\n", {"line 2", "a quote inside"}},
      {head + "\"w\"v,8x8,,\n", {"line 2", "after a closing quote"}},
      {head + "w,8x8,,\rx", {"line 2", "carriage return"}},
      {head + "\"a\nb\",8x8,,\nw,8,,bad\n", {"line 4", "rule"}},
      {head + "\xff,8x8,,\n", {"line 2", "UTF-8"}},
      {head + "\xed\xa0\x80,8x8,,\n", {"line 2", "UTF-8"}},
      {"name,shape,transposed\nw,8,yes\n", {"line 2", "transposed"}},
      {"name,shape,unit\nw,8,-3\n", {"line 2", "unit"}},
      {std::string(100, ','), {"line 1", "64 cells"}},
  };
  for (const auto &each : bad) {
    LoadedModel model;
    const std::string complaint = expect(model_from_csv(each.text, &model), MXS_INVALID_ARGUMENT, each.said);
    if (!complaint.empty()) return each.text + ": " + complaint;
    if (!model.tensors.empty()) return "the output was touched";
  }
  LoadedModel model;
  if (model_from_csv("name,shape\n\"a, \"\"b\"\"\nc\",8x8", &model) != MXS_OK) return error_of("quotes");
  return model.tensors[0].name == "a, \"b\"\nc" ? "" : model.tensors[0].name;
}

std::string files_are_told_by_their_names_and_sizes() {
  const Folder folder;
  put(folder / "list.json", every_field);
  put(folder / "list.csv", the_same_as_csv);
  for (const char *name : {"list.json", "list.csv"}) {
    const Loaded loaded(folder / name);
    if (loaded.status != MXS_OK) return error_of(name);
    if (loaded.count != 5 || std::strcmp(mxs_model_unit_name(loaded.model, 1), "second") != 0) return name;
    const mxs_tensor *tied = loaded.find("d");
    if (std::strcmp(tied->tied_to, "c") != 0 || tied->rule != MXS_RULE_AUTO || tied->role != MXS_ROLE_TIED) return "d";
    if (loaded.find("b")->block_count != 2 || loaded.find("b")->block_rows[1] != 8) return "b";
    // 3 x 96 + 1: what is tied has no parameters of its own.
    if (std::strcmp(mxs_model_title(loaded.model), "list, 5 tensors, 289 parameters") != 0)
      return mxs_model_title(loaded.model);
  }
  put(folder / "bad.csv", "name,shape\nw,x\n");
  put(folder / "neither.json", "{\"x\": 1}");
  put(folder / "empty.csv", "name,shape\n");
  const struct {
    const char *name;
    mxs_status status;
    std::vector<std::string> said;
  } bad[] = {{"bad.csv", MXS_INVALID_ARGUMENT, {"bad.csv", "line 2"}},
             {"neither.json", MXS_INVALID_ARGUMENT, {"neither.json", "tensors", "architectures", "weight_map"}},
             {"empty.csv", MXS_INVALID_ARGUMENT, {"empty.csv", "no tensor"}},
             {"large.csv", MXS_INVALID_ARGUMENT, {"large.csv", "64 MiB"}},
             {"large.json", MXS_INVALID_ARGUMENT, {"large.json", "64 MiB"}}};
  for (const char *name : {"large.csv", "large.json"}) {
    put(folder / name, "");
    if (truncate((folder / name).c_str(), (off_t{64} << 20) + 1) != 0) return "truncate";
  }
  for (const auto &each : bad) {
    const Loaded loaded(folder / each.name);
    const std::string complaint = expect(loaded.status, each.status, each.said);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

void every(void **) { assert_true(good(every_field_arrives_from_both())); }
void units(void **) { assert_true(good(units_are_numbers_or_layers_too())); }
void bad_json(void **) { assert_true(good(bad_lists_name_the_tensor_and_the_field())); }
void bad_csv(void **) { assert_true(good(bad_csv_names_the_line())); }
void files(void **) { assert_true(good(files_are_told_by_their_names_and_sizes())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      {"every_field_arrives_from_both", every, nullptr, nullptr, nullptr},
      {"units_are_numbers_or_layers_too", units, nullptr, nullptr, nullptr},
      {"bad_lists_name_the_tensor_and_the_field", bad_json, nullptr, nullptr, nullptr},
      {"bad_csv_names_the_line", bad_csv, nullptr, nullptr, nullptr},
      {"files_are_told_by_their_names_and_sizes", files, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
