/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same work as mxs-perf does, by Open MPI, for perf/compare_openmpi. The library does not use MPI.
 *
 *   mpirun -n 4 openmpi_times BYTES OWNERS ITERATIONS
 *
 * prints one line per way: name, median and least time of the slowest rank in microseconds, wrong values:
 *
 *   allgatherv      MPI_Allgatherv in place
 *   reduce_mpi      one MPI_Reduce per owner, fp32
 *   reduce_scatter  MPI_Reduce_scatter, fp32
 *
 * Owners are spread over the ranks as mxs-perf's layout k:OWNERS does. Buffers are touched before.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { warmup_count = 3 };

typedef struct {
  int rank, rank_count, owner_count;
  size_t bytes;
  int *counts, *offsets; /* by rank, in floats */
  float *buffer, *sums;
} job;

static void *allocate(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, (size_t)2 << 20, bytes) != 0) MPI_Abort(MPI_COMM_WORLD, 2);
  madvise(memory, bytes, MADV_HUGEPAGE);
  memset(memory, 0, bytes);
  return memory;
}

static void make_job(job *work) {
  const size_t elements = work->bytes / sizeof(float);
  work->counts = calloc((size_t)work->rank_count, sizeof(int));
  work->offsets = calloc((size_t)work->rank_count, sizeof(int));
  size_t begin = 0;
  for (int i = 0; i < work->owner_count; i++) {
    const int owner = (int)((long)i * work->rank_count / work->owner_count);
    const size_t end = elements * (size_t)(i + 1) / (size_t)work->owner_count;
    work->counts[owner] = (int)(end - begin);
    work->offsets[owner] = (int)begin;
    begin = end;
  }
  work->buffer = allocate(work->bytes);
  work->sums = allocate(work->bytes);
}

static float owners_value(int owner, size_t element) { return (float)(owner * 1000 + (int)(element % 997)); }

static void fill_gather(job *work) {
  const size_t elements = work->bytes / sizeof(float);
  for (size_t i = 0; i < elements; i++) work->buffer[i] = -1.0f;
  for (int i = 0; i < work->counts[work->rank]; i++) {
    const size_t at = (size_t)work->offsets[work->rank] + (size_t)i;
    work->buffer[at] = owners_value(work->rank, at);
  }
}

static long wrong_gather(const job *work) {
  long wrong = 0;
  for (int owner = 0; owner < work->rank_count; owner++)
    for (int i = 0; i < work->counts[owner]; i++) {
      const size_t at = (size_t)work->offsets[owner] + (size_t)i;
      wrong += work->buffer[at] != owners_value(owner, at);
    }
  return wrong;
}

static void fill_reduce(job *work) {
  const size_t elements = work->bytes / sizeof(float);
  for (size_t i = 0; i < elements; i++) work->buffer[i] = (float)(work->rank + (int)(i % 97));
}

static long wrong_reduce(const job *work) {
  const int ranks = work->rank_count;
  long wrong = 0;
  for (int i = 0; i < work->counts[work->rank]; i++) {
    const size_t at = (size_t)work->offsets[work->rank] + (size_t)i;
    wrong += work->sums[i] != (float)(ranks * (int)(at % 97) + ranks * (ranks - 1) / 2);
  }
  return wrong;
}

static void allgatherv(job *work) {
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, work->buffer, work->counts, work->offsets, MPI_FLOAT,
                 MPI_COMM_WORLD);
}

static void reduce(job *work) {
  for (int owner = 0; owner < work->rank_count; owner++)
    if (work->counts[owner])
      MPI_Reduce(work->buffer + work->offsets[owner], work->sums, work->counts[owner], MPI_FLOAT, MPI_SUM, owner,
                 MPI_COMM_WORLD);
}

static void reduce_scatter(job *work) {
  MPI_Reduce_scatter(work->buffer, work->sums, work->counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(job *work, const char *name, void (*body)(job *), void (*fill)(job *),
                    long (*count_wrong)(const job *), int iterations) {
  double *times = calloc((size_t)iterations, sizeof(double));
  fill(work);
  for (int i = -warmup_count; i < iterations; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    body(work);
    double time = (MPI_Wtime() - start) * 1e6, slowest = 0;
    MPI_Allreduce(&time, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i >= 0) times[i] = slowest;
  }
  long wrong = count_wrong(work), wrong_sum = 0;
  MPI_Allreduce(&wrong, &wrong_sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  qsort(times, (size_t)iterations, sizeof(double), by_value);
  if (work->rank == 0) printf("%s %.2f %.2f %ld\n", name, times[iterations / 2], times[0], wrong_sum);
  free(times);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  job work = {0};
  MPI_Comm_rank(MPI_COMM_WORLD, &work.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &work.rank_count);
  const int iterations = argc == 4 ? atoi(argv[3]) : 0;
  work.bytes = argc == 4 ? strtoull(argv[1], NULL, 10) : 0;
  work.owner_count = argc == 4 ? atoi(argv[2]) : 0;
  if (iterations < 1 || work.owner_count < 1 || work.owner_count > work.rank_count || work.bytes < sizeof(float) ||
      work.bytes > (size_t)4 << 30) {
    if (work.rank == 0) fprintf(stderr, "usage: mpirun -n N openmpi_times BYTES OWNERS ITERATIONS\n");
    MPI_Finalize();
    return 2;
  }
  make_job(&work);
  measure(&work, "allgatherv", allgatherv, fill_gather, wrong_gather, iterations);
  measure(&work, "reduce_mpi", reduce, fill_reduce, wrong_reduce, iterations);
  measure(&work, "reduce_scatter", reduce_scatter, fill_reduce, wrong_reduce, iterations);
  MPI_Finalize();
  return 0;
}
