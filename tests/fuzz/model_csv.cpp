// SPDX-License-Identifier: Apache-2.0
// Lists in CSV.
#include "models.hpp"

using namespace mxs;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  LoadedModel model;
  if (model_from_csv(fuzz::text_of(data, size), &model) == MXS_OK) fuzz::check_model(&model);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"name,shape\nl.0.w,8x4\nl.1.w,8x4\nl.07.b,8\nhead,3x4\n",
          "\xef\xbb\xbfname,shape,dtype,rule,unit\r\n"
          "\"a, \"\"b\"\"\",8x4,bf16,muon,first\r\n\r\nc , 2 x 2 ,,,second\r\n",
          "name,shape,unit,block_rows,block_columns,transposed,tied_to\n"
          "a,8x4,0,4x4,,,\nb,8x4,3,,1x3,true,\nc,8x4,,,,,a\n",
          "name,shape,group,role,fixed_owner,co_owners,whole_rows,whole_columns,master_dtype,gradient_dtype\n"
          "a,8x4,1,matrix,7,,16,8,f32,f32\nb,5,,tail,,,,,,\n"};
}
