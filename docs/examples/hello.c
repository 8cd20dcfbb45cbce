/* SPDX-License-Identifier: Apache-2.0 */
/* Two matrices, an owner for each, one step of Muon. Start it with: mxs run -n 2 -- ./hello */
#include <matrixshard/matrixshard.h>
#include <stdio.h>
#include <stdlib.h>

static void must(mxs_status status) { if (status < 0) fprintf(stderr, "%s\n", mxs_last_error()), exit(1); }

int main(void) {
  mxs_tensor tensors[2] = {{.size = sizeof(mxs_tensor), .name = "first", .dimension_count = 2, .shape = {64, 64}},
                           {.size = sizeof(mxs_tensor), .name = "second", .dimension_count = 2, .shape = {64, 64}}};
  mxs_comm *comm = NULL;            must(mxs_comm_create(&comm, NULL));
  mxs_topology *topology = NULL;    must(mxs_comm_topology(comm, &topology));
  mxs_plan *plan = NULL;            must(mxs_plan_create(&plan, tensors, 2, topology, NULL)); /* who owns what */
  mxs_unit *unit = NULL;            must(mxs_unit_create(&unit, comm, plan, 0, NULL));
  mxs_optimizer *optimizer = NULL;  must(mxs_optimizer_create(&optimizer, &unit, 1, NULL));
  for (int32_t t = 0; t < 2; ++t) { /* backward: every rank has a gradient of every tensor */
    mxs_view view = MXS_VIEW_INIT;  must(mxs_unit_gradient(unit, t, MXS_WRITE, &view));
    for (int i = 0; i < 64 * 64; ++i) ((float *)view.data)[i] = (float)(i % 65 == 0);
  }
  must(mxs_unit_reduce(unit, NULL)); /* the sums go to the owners */
  mxs_group_values values = MXS_GROUP_VALUES_INIT;  mxs_verdict verdict = MXS_VERDICT_INIT;
  mxs_step step = {.size = sizeof step, .groups = &values, .group_count = 1};
  must(mxs_optimizer_step(optimizer, &step, &verdict)); /* local: no matrix bytes move */
  must(mxs_unit_gather(unit, NULL));  must(mxs_unit_wait(unit, NULL)); /* forward: everybody sees the new weights */
  mxs_view second = MXS_VIEW_INIT;  must(mxs_unit_tensor(unit, 1, &second));
  printf("step %d, norm %g, first weight %g\n", (int)verdict.step_number, verdict.norm, ((float *)second.data)[0]);
  must(mxs_unit_release(unit, MXS_FREE, NULL));
  must(mxs_optimizer_destroy(&optimizer));  must(mxs_unit_destroy(&unit));  mxs_plan_destroy(&plan);
  mxs_topology_destroy(&topology);  must(mxs_comm_destroy(&comm));
}
