/* SPDX-License-Identifier: Apache-2.0 */
/**
 * matrixshard: ZeRO-3 memory and whole matrices.
 *
 *   FSDP   Wq = [r0|r1|r2|r3]  Wk = [r0|r1|r2|r3]   each step gathers Wq, Wk again
 *   here   Wq = [--- r0 ---]   Wk = [--- r1 ---]    each step gathers nothing
 *
 * One rank owns each matrix, the others hold an empty shard. Forward and
 * backward bring a unit's matrices to everyone (gather); gradients are summed
 * straight into the owner (reduce); the optimizer's step is local.
 *
 * Nouns, in reading order (a header each):
 *
 *   topology    which ranks share a node, its NICs, and how fast messages are
 *   model       the tensors of a model, read from its files
 *   plan        which rank owns which tensor
 *   comm        the ranks of a job, or some of them
 *   unit        tensors gathered together, at fixed addresses
 *   optimizer   Muon, Shampoo, SOAP and AdamW at the owners
 *   checkpoint  a folder that is a Hugging Face model, and all that training needs to go on in any world
 *   trace       what ranks did and who kept whom waiting, also after a crash
 *   kernels     their step alone, of any matrix, with no comm: steppers, Newton-Schulz, passes
 *   layout, collective   the parts below, for other uses
 *   dlpack      views for other frameworks
 *
 * A life:
 *
 *   mxs_comm_create(&comm, NULL);                       torchrun, srun, mpirun
 *   mxs_comm_topology(comm, &topology);
 *   mxs_plan_create(&plan, tensors, tensor_count, topology, NULL);
 *   mxs_unit_create(&unit[u], comm, plan, u, NULL);
 *   mxs_optimizer_create(&optimizer, unit, unit_count, NULL);
 *   mxs_unit_shard(unit[u], p, &view); fill it; mxs_unit_commit(unit[u], &view);
 *   for each step
 *     forward   mxs_unit_gather(unit[u + 1], NULL); mxs_unit_wait(unit[u], NULL);
 *               mxs_unit_tensor(unit[u], t, &view); compute; mxs_unit_release(unit[u], MXS_FREE, NULL);
 *     backward  the same from the last to the first, and
 *               mxs_unit_gradient(unit[u], t, MXS_WRITE, &view); compute; mxs_unit_reduce(unit[u], NULL);
 *     step      mxs_optimizer_step(optimizer, &step, &verdict);
 *   and everything destroyed in the opposite order
 *
 * Rules that hold everywhere:
 *
 *   errors      every call that can fail returns mxs_status; outputs are untouched on failure (status.h)
 *   ownership   handles are destroyed by their destroy, which takes the handle's address and accepts NULL;
 *               names and arrays passed in are copied unless the function says "borrowed";
 *               text that comes out belongs to the library: static, or the handle's as long as that lives
 *   threads     a comm and what is made from it take calls from any thread, one at a time (comm.h)
 *   fork        in a forked child calls that communicate, touch a family's memory or destroy return MXS_FORKED
 */
#ifndef MATRIXSHARD_MATRIXSHARD_H
#define MATRIXSHARD_MATRIXSHARD_H

#include "matrixshard/version.h"
#include "matrixshard/status.h"
#include "matrixshard/types.h"
#include "matrixshard/dlpack.h"
#include "matrixshard/topology.h"
#include "matrixshard/plan.h"
#include "matrixshard/model.h"
#include "matrixshard/layout.h"
#include "matrixshard/comm.h"
#include "matrixshard/collective.h"
#include "matrixshard/unit.h"
#include "matrixshard/kernels.h"
#include "matrixshard/optimizer.h"
#include "matrixshard/checkpoint.h"
#include "matrixshard/cuda.h"
#include "matrixshard/trace.h"

#endif /* MATRIXSHARD_MATRIXSHARD_H */
