/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that go on when one of them dies. Start it with: mxs run --keep-going -n 4 -- ./go_on 2
 *
 * The argument is a rank that is killed in the forward pass of step 5; without it nobody is. */
#include <matrixshard/matrixshard.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { layers = 3, steps = 8, ranks_most = 64 };

typedef struct {
  mxs_comm *comm;
  mxs_plan *plan;
  mxs_unit *units[layers];
  mxs_optimizer *optimizer;
} job;

static void must(mxs_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", mxs_status_name(status), mxs_last_error());
  exit(1);
}

/* previous: the job whose comm this one's was shrunk from, or NULL. */
static void make(job *made, const job *previous) {
  static const char *const names[layers] = {"first", "second", "third"};
  mxs_tensor tensors[layers] = {MXS_TENSOR_INIT, MXS_TENSOR_INIT, MXS_TENSOR_INIT};
  for (int layer = 0; layer < layers; ++layer) {
    tensors[layer].name = names[layer];
    tensors[layer].unit = layer;
    tensors[layer].dimension_count = 2;
    tensors[layer].shape[0] = 96;
    tensors[layer].shape[1] = 64;
  }
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  must(mxs_comm_query(made->comm, &info));
  if (info.rank_count > ranks_most) exit(1);
  int32_t was[ranks_most];
  for (int32_t rank = 0; rank < info.rank_count; ++rank) must(mxs_comm_origin(made->comm, rank, &was[rank]));
  mxs_plan_options plan_options = MXS_PLAN_OPTIONS_INIT;
  plan_options.previous = previous ? previous->plan : NULL; /* owners keep what they have */
  plan_options.previous_ranks = previous ? was : NULL;
  mxs_topology *topology = NULL;
  must(mxs_comm_topology(made->comm, &topology));
  must(mxs_plan_create(&made->plan, tensors, layers, topology, &plan_options));
  mxs_topology_destroy(&topology);
  for (int layer = 0; layer < layers; ++layer)
    must(mxs_unit_create(&made->units[layer], made->comm, made->plan, layer, NULL));
  mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
  options.backup = 1;
  must(mxs_optimizer_create(&made->optimizer, made->units, layers, &options));
}

static void destroy(job *made) {
  must(mxs_optimizer_destroy(&made->optimizer));
  for (int layer = 0; layer < layers; ++layer) must(mxs_unit_destroy(&made->units[layer]));
  mxs_plan_destroy(&made->plan);
  must(mxs_comm_destroy(&made->comm));
}

static mxs_status forward(mxs_unit *unit, int dies) {
  mxs_status status = mxs_unit_gather(unit, NULL);
  if (status == MXS_OK) status = mxs_unit_wait(unit, NULL);
  if (dies) raise(SIGKILL);
  return status == MXS_OK ? mxs_unit_release(unit, MXS_FREE, NULL) : status;
}

static mxs_status backward(mxs_unit *unit, int32_t tensor) {
  mxs_view gradient = MXS_VIEW_INIT;
  const mxs_status status = mxs_unit_gradient(unit, tensor, MXS_WRITE, &gradient);
  if (status != MXS_OK) return status;
  for (uint64_t i = 0; i < gradient.bytes / sizeof(float); ++i) ((float *)gradient.data)[i] = (float)(i % 65 == 0);
  return mxs_unit_reduce(unit, NULL);
}

static mxs_status one_step(const job *of, int dies) {
  mxs_status status = MXS_OK;
  for (int layer = 0; layer < layers && status == MXS_OK; ++layer)
    status = forward(of->units[layer], dies && layer == 1);
  for (int layer = layers - 1; layer >= 0 && status == MXS_OK; --layer) status = backward(of->units[layer], layer);
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  step.groups = &values;
  step.group_count = 1;
  return status == MXS_OK ? mxs_optimizer_step(of->optimizer, &step, NULL) : status;
}

/* The same of the ranks that are left, with what they had after the newest step that all of it exists of. */
static void go_on(job *now) {
  job next = {NULL, NULL, {NULL}, NULL};
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.timeout_ns = 30000000000u; /* so long for ranks that may be alive */
  must(mxs_comm_shrink(&next.comm, now->comm, &options));
  make(&next, now);
  mxs_recovery recovery = MXS_RECOVERY_INIT;
  must(mxs_optimizer_recover(next.optimizer, now->optimizer, &recovery));
  destroy(now);
  *now = next;
  printf("goes on after step %d\n", (int)recovery.step_number);
}

int main(int count, char **words) {
  const int victim = count > 1 ? atoi(words[1]) : -1;
  job now = {NULL, NULL, {NULL}, NULL};
  must(mxs_comm_create(&now.comm, NULL));
  make(&now, NULL);
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  must(mxs_comm_query(now.comm, &info));
  const int is_victim = info.rank == victim, rank_count = info.rank_count - (victim >= 0);
  uint64_t done = 0;
  while ((done = mxs_optimizer_step_number(now.optimizer)) < steps) {
    const mxs_status status = one_step(&now, is_victim && done == 4);
    const int goes_on = status == MXS_PEER_FAILED || status == MXS_TIMED_OUT || status == MXS_TRANSPORT_FAILED ||
                        status == MXS_ABORTED;
    if (goes_on) go_on(&now);
    else must(status);
  }
  must(mxs_comm_query(now.comm, &info));
  printf("rank %d of %d has done %d steps\n", info.rank, info.rank_count, (int)done);
  destroy(&now);
  return info.rank_count == rank_count ? 0 : 1;
}
