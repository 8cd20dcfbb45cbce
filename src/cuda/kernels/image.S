/* SPDX-License-Identifier: Apache-2.0 */
/* The fat binary that nvcc made of kernels.cu, as bytes of this library. */
  .section .rodata
  .balign 64
  .globl mxs_kernel_image
  .hidden mxs_kernel_image
mxs_kernel_image:
  .incbin MXS_KERNEL_IMAGE
  .globl mxs_kernel_image_end
  .hidden mxs_kernel_image_end
mxs_kernel_image_end:
  .byte 0
  .section .note.GNU-stack, "", @progbits
