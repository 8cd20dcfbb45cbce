/* SPDX-License-Identifier: Apache-2.0 */
// Which driver does a program of the suite "gpu" run on?
//
//   int main(int, char **arguments) {
//     if (!mxs::test::gpu_is_there(arguments, 2)) return 0;  // the line 1..0 # SKIP has been printed
//
// Meson sets LD_LIBRARY_PATH to the stand-ins' folders. Where MXS_TEST_GPU is set, the program begins again without it
// (the loader reads that variable only when a program starts), and finds the system's driver: MXS_TEST_GPU=1, or a path
// of folders in which the loader is to look.
//
// What it asks the driver it asks in a child, so that this process has no CUDA yet and may fork ranks.
#pragma once

namespace mxs::test {

// False: printed why this program is skipped. Call it first: it may start the program again.
bool gpu_is_there(char **arguments, int devices_wanted = 1);

// Runs on the stand-ins, whose switches (tests/standins/cuda/switches.hpp) mean something.
bool on_standin();

// Changes a switch of the stand-in while the program runs: "MXS_STANDIN_FAIL_ALLOCATION_AFTER", "3". nullptr: back to
// its default. False: this is a real driver, or it knows no such switch.
bool set_standin(const char *name, const char *value);

}  // namespace mxs::test
