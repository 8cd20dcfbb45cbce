/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DLPack: a view as frameworks hand tensors to one another (torch, numpy, jax). Nothing is copied.
 *
 * The structs themselves are DLPack's own and are not declared here: include
 * dlpack/dlpack.h, or pass the pointer on, as a binding for a language does.
 */
#ifndef MATRIXSHARD_DLPACK_H
#define MATRIXSHARD_DLPACK_H

#include "matrixshard/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MXS_DLPACK_VERSIONED 1 /**< a DLManagedTensorVersioned, of version 1.0; else a DLManagedTensor */
#define MXS_DLPACK_READ_ONLY 2 /**< versioned: consumers are told not to write */

/**
 * A view as a tensor of DLPack.
 *
 * The tensor's deleter takes one off *use_count and frees the struct, from any thread, and does nothing else: whoever
 * has the view keeps its memory as long as *use_count isn't what it was before.
 *
 * @param flags      MXS_DLPACK_...
 * @param use_count  Raised by one here, atomically. It must live until all tensors are deleted.
 * @param managed    Receives the struct that flags asks for. Its consumer calls its deleter once.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, other flags, or a view that nothing has filled.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_view_dlpack(const mxs_view *view, int32_t flags, int64_t *use_count, void **managed);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_DLPACK_H */
