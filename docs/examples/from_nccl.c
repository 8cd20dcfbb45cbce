/* SPDX-License-Identifier: Apache-2.0 */
/* An uneven all-gather and reduce-scatter, as programs of NCCL know them. Start it with: mxs run -n 3 -- ./from_nccl */
#include <matrixshard/matrixshard.h>
#include <stdio.h>
#include <stdlib.h>

enum { ranks_max = 64, floats_of_a_rank = 1000 };

static void must(mxs_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", mxs_status_name(status), mxs_last_error());
  exit(1);
}

static mxs_collective *make(mxs_comm *comm, const mxs_layout *layout, int32_t kind) {
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = kind;
  options.layout = layout;
  options.dtype = MXS_F32;
  mxs_collective *collective = NULL;
  must(mxs_collective_create(&collective, comm, &options));
  return collective;
}

int main(void) {
  mxs_comm *comm = NULL; /* ncclGetUniqueId, its broadcast, ncclCommInitRank */
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  must(mxs_comm_create(&comm, NULL));
  must(mxs_comm_query(comm, &info)); /* ncclCommCount, ncclCommUserRank */
  if (info.rank_count > ranks_max) return 2;

  /* Counts and offsets become a layout, once: rank r owns r * 1000 floats, rank 0 none. */
  mxs_segment segments[ranks_max];
  uint64_t floats = 0, offsets[ranks_max + 1] = {0};
  for (int32_t rank = 0; rank < info.rank_count; ++rank) {
    const uint64_t count = (uint64_t)rank * floats_of_a_rank;
    segments[rank] = (mxs_segment){sizeof(mxs_segment), rank, floats * sizeof(float), count * sizeof(float)};
    offsets[rank] = floats;
    floats += count;
    offsets[rank + 1] = floats;
  }
  mxs_layout *layout = NULL;
  must(mxs_layout_create(&layout, segments, (uint64_t)info.rank_count, info.rank_count, 0));

  float *all = NULL, *sums = NULL; /* ncclMemAlloc: memory that peers of the node reach by load and store */
  must(mxs_comm_allocate(comm, floats * sizeof(float), MXS_HOST, (void **)&all));
  must(mxs_comm_allocate(comm, floats * sizeof(float), MXS_HOST, (void **)&sums));

  /* ncclGroupStart();
   * for (root ...) ncclBroadcast(own, all + offsets[root], counts[root], ncclFloat, root, comm, stream);
   * ncclGroupEnd(); cudaStreamSynchronize(stream); */
  mxs_collective *gather = make(comm, layout, MXS_GATHER);
  for (uint64_t i = offsets[info.rank]; i < offsets[info.rank + 1]; ++i) all[i] = (float)info.rank;
  must(mxs_collective_start(gather, NULL, all, NULL)); /* NULL: in place. Any number of times, without allocating */
  must(mxs_collective_wait(gather, NULL));

  /* ncclGroupStart();
   * for (root ...) ncclReduce(all + offsets[root], sums, counts[root], ncclFloat, ncclSum, root, comm, stream);
   * ncclGroupEnd(); cudaStreamSynchronize(stream); */
  mxs_collective *reduce = make(comm, layout, MXS_REDUCE);
  must(mxs_collective_start(reduce, all, sums, NULL)); /* sums: this rank's segments, packed, fp32 */
  must(mxs_collective_wait(reduce, NULL));

  int wrong = 0;
  for (int32_t rank = 0; rank < info.rank_count; ++rank)
    for (uint64_t i = offsets[rank]; i < offsets[rank + 1]; ++i) wrong += all[i] != (float)rank;
  for (uint64_t i = 0; i < offsets[info.rank + 1] - offsets[info.rank]; ++i)
    wrong += sums[i] != (float)(info.rank * info.rank_count);
  mxs_collective_info chosen = MXS_COLLECTIVE_INFO_INIT;
  must(mxs_collective_describe(gather, &chosen));
  printf("rank %d of %d: %d floats by %s, %d wrong\n", info.rank, info.rank_count, (int)floats, chosen.algorithm,
         wrong);

  must(mxs_collective_destroy(&reduce));
  must(mxs_collective_destroy(&gather));
  must(mxs_comm_free(comm, sums));
  must(mxs_comm_free(comm, all));
  mxs_layout_destroy(&layout);
  must(mxs_comm_destroy(&comm)); /* waits for no call of others */
  return wrong ? 1 : 0;
}
