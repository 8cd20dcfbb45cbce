/* SPDX-License-Identifier: Apache-2.0 */
/* One matrix and Muon, alone: no ranks, no plan. Weights walk to a target, by the gradient of half the squared way. */
#include <matrixshard/matrixshard.h>
#include <stdio.h>
#include <stdlib.h>

enum { rows = 64, columns = 32, steps = 200 };
static float weights[rows * columns], target[rows * columns], gradient[rows * columns];

static void must(mxs_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", mxs_status_name(status), mxs_last_error());
  exit(1);
}

int main(void) {
  mxs_matrices matrices = MXS_MATRICES_INIT;
  matrices.rows = rows;
  matrices.columns = columns;
  mxs_stepper *stepper = NULL;
  must(mxs_muon_create(&stepper, &matrices, NULL));
  void *state = aligned_alloc(64, mxs_stepper_state_bytes(stepper));
  void *workspace = aligned_alloc(64, mxs_stepper_workspace_bytes(stepper));
  if (!state || !workspace) return 1;
  must(mxs_stepper_init(stepper, state));

  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.weight_decay = 0;
  mxs_step_call call = MXS_STEP_CALL_INIT;
  call.values = &values;
  call.gradient = gradient;
  call.weights = weights;
  call.state = state;
  call.workspace = workspace;
  call.workspace_bytes = mxs_stepper_workspace_bytes(stepper);
  for (int i = 0; i < rows * columns; ++i) target[i] = (float)((i * 37 + i / columns * 11) % 19 - 9) / 9;

  mxs_step_result result = MXS_STEP_RESULT_INIT;
  double first = 0;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < rows * columns; ++i) gradient[i] = weights[i] - target[i];
    values.lr = 0.1f * (float)(steps - step) / steps;
    must(mxs_stepper_step(stepper, &call, &result));
    if (step == 0) first = result.gradient_norm;
  }
  printf("step %d: %.3f from the target, %.3f at first\n", steps, result.gradient_norm, first);
  const int near = result.gradient_norm < first / 20;
  mxs_stepper_destroy(&stepper);
  free(workspace);
  free(state);
  return near ? 0 : 1;
}
