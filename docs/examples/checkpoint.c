/* SPDX-License-Identifier: Apache-2.0 */
/* A step more than the newest checkpoint has: mxs run -n 2 -- ./checkpoint FOLDER, then with -n 3, and so on. */
#include <matrixshard/matrixshard.h>
#include <stdio.h>
#include <stdlib.h>

static void must(mxs_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", mxs_status_name(status), mxs_last_error());
  exit(1);
}

int main(int argument_count, char **arguments) {
  if (argument_count != 2) return 2;
  mxs_tensor tensors[2] = {MXS_TENSOR_INIT, MXS_TENSOR_INIT};
  for (int t = 0; t < 2; ++t) {
    tensors[t].name = t == 0 ? "first" : "second", tensors[t].dimension_count = 2;
    tensors[t].shape[0] = tensors[t].shape[1] = 64;
  }
  mxs_comm *comm = NULL;
  mxs_topology *topology = NULL;
  mxs_plan *plan = NULL;
  mxs_unit *unit = NULL;
  mxs_optimizer *optimizer = NULL;
  must(mxs_comm_create(&comm, NULL));
  must(mxs_comm_topology(comm, &topology));
  must(mxs_plan_create(&plan, tensors, 2, topology, NULL));
  must(mxs_unit_create(&unit, comm, plan, 0, NULL));
  must(mxs_optimizer_create(&optimizer, &unit, 1, NULL));

  mxs_checkpoint *checkpoint = NULL; /* the newest one in the folder, whatever number of ranks saved it */
  const mxs_status found = mxs_checkpoint_open(&checkpoint, arguments[1]);
  if (found != MXS_NOT_FOUND) must(found);
  if (checkpoint) must(mxs_checkpoint_load(checkpoint, &unit, 1, optimizer, NULL));
  mxs_checkpoint_close(&checkpoint);

  for (int32_t t = 0; t < 2; ++t) { /* backward */
    mxs_view gradient = MXS_VIEW_INIT;
    must(mxs_unit_gradient(unit, t, MXS_WRITE, &gradient));
    for (uint64_t i = 0; i < gradient.bytes / sizeof(float); ++i) ((float *)gradient.data)[i] = (float)(i % 65 == 0);
  }
  must(mxs_unit_reduce(unit, NULL));
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  mxs_verdict verdict = MXS_VERDICT_INIT;
  step.groups = &values;
  step.group_count = 1;
  must(mxs_optimizer_step(optimizer, &step, &verdict));
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.keep = 2; /* the newest two stay */
  must(mxs_checkpoint_save(arguments[1], &unit, 1, optimizer, &options));
  printf("step %d is in %s\n", (int)verdict.step_number, arguments[1]);
  must(mxs_optimizer_destroy(&optimizer));
  must(mxs_unit_destroy(&unit));
  mxs_plan_destroy(&plan);
  mxs_topology_destroy(&topology);
  must(mxs_comm_destroy(&comm));
  return 0;
}
