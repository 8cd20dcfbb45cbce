/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes and offsets of every public struct on 64-bit machines, as programs that exist have them compiled in.
 * A line that no longer holds is a break of the ABI: fields are added at the end only, and then a size here grows
 * (docs/abi.md). Compiled by headers.py; a struct or field that is missing here fails there.
 */
#include <stddef.h>

#include "matrixshard/matrixshard.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, field, bytes) _Static_assert(offsetof(type, field) == (bytes), "offset of " #type "." #field)

_Static_assert(sizeof(void *) == 8, "a 64-bit machine");
_Static_assert(sizeof(mxs_status) == 4, "size of mxs_status");
_Static_assert(sizeof(mxs_request) == 8, "size of mxs_request");

SIZE(mxs_collective_options, 56);
AT(mxs_collective_options, size, 0);
AT(mxs_collective_options, kind, 4);
AT(mxs_collective_options, layout, 8);
AT(mxs_collective_options, target_layout, 16);
AT(mxs_collective_options, dtype, 24);
AT(mxs_collective_options, flags, 28);
AT(mxs_collective_options, algorithm, 32);
AT(mxs_collective_options, chunk_bytes, 40);
AT(mxs_collective_options, window, 48);
AT(mxs_collective_options, memory, 52);

SIZE(mxs_collective_info, 112);
AT(mxs_collective_info, size, 0);
AT(mxs_collective_info, kind, 4);
AT(mxs_collective_info, algorithm, 8);
AT(mxs_collective_info, transports, 16);
AT(mxs_collective_info, bytes_out, 24);
AT(mxs_collective_info, bytes_in, 32);
AT(mxs_collective_info, message_count, 40);
AT(mxs_collective_info, chunk_bytes, 48);
AT(mxs_collective_info, scratch_bytes, 56);
AT(mxs_collective_info, bytes_in_least, 64);
AT(mxs_collective_info, predicted_ns, 72);
AT(mxs_collective_info, bound_ns, 80);
AT(mxs_collective_info, routes, 88);
AT(mxs_collective_info, reason, 96);
AT(mxs_collective_info, window, 104);
AT(mxs_collective_info, reserved, 108);

SIZE(mxs_simulation, 72);
AT(mxs_simulation, size, 0);
AT(mxs_simulation, window, 4);
AT(mxs_simulation, algorithm, 8);
AT(mxs_simulation, time_ns, 16);
AT(mxs_simulation, bound_ns, 24);
AT(mxs_simulation, predicted_ns, 32);
AT(mxs_simulation, message_count, 40);
AT(mxs_simulation, rail_bytes_max, 48);
AT(mxs_simulation, chunk_bytes, 56);
AT(mxs_simulation, last_rank, 64);
AT(mxs_simulation, reserved, 68);

SIZE(mxs_bootstrap, 48);
AT(mxs_bootstrap, size, 0);
AT(mxs_bootstrap, rank, 4);
AT(mxs_bootstrap, rank_count, 8);
AT(mxs_bootstrap, local_rank_hint, 12);
AT(mxs_bootstrap, context, 16);
AT(mxs_bootstrap, all_gather, 24);
AT(mxs_bootstrap, test, 32);
AT(mxs_bootstrap, free_request, 40);

SIZE(mxs_comm_options, 56);
AT(mxs_comm_options, size, 0);
AT(mxs_comm_options, thread_count, 4);
AT(mxs_comm_options, bootstrap, 8);
AT(mxs_comm_options, transport, 16);
AT(mxs_comm_options, timeout_ns, 24);
AT(mxs_comm_options, progress, 32);
AT(mxs_comm_options, device, 36);
AT(mxs_comm_options, nccl_comm, 40);
AT(mxs_comm_options, secret, 48);

SIZE(mxs_comm_info, 72);
AT(mxs_comm_info, size, 0);
AT(mxs_comm_info, rank, 4);
AT(mxs_comm_info, rank_count, 8);
AT(mxs_comm_info, node, 12);
AT(mxs_comm_info, node_count, 16);
AT(mxs_comm_info, local_rank, 20);
AT(mxs_comm_info, local_rank_count, 24);
AT(mxs_comm_info, thread_count, 28);
AT(mxs_comm_info, timeout_ns, 32);
AT(mxs_comm_info, transports, 40);
AT(mxs_comm_info, bootstrap, 48);
AT(mxs_comm_info, progress, 56);
AT(mxs_comm_info, device, 60);
AT(mxs_comm_info, cuda, 64);

SIZE(mxs_counter, 32);
AT(mxs_counter, calls, 0);
AT(mxs_counter, bytes_out, 8);
AT(mxs_counter, bytes_in, 16);
AT(mxs_counter, wait_ns, 24);

SIZE(mxs_comm_stats, 528);
AT(mxs_comm_stats, size, 0);
AT(mxs_comm_stats, reserved, 4);
AT(mxs_comm_stats, counters, 8);
AT(mxs_comm_stats, slot_remaps, 520);

SIZE(mxs_segment, 24);
AT(mxs_segment, size, 0);
AT(mxs_segment, owner, 4);
AT(mxs_segment, offset, 8);
AT(mxs_segment, bytes, 16);

SIZE(mxs_group_values, 32);
AT(mxs_group_values, size, 0);
AT(mxs_group_values, lr, 4);
AT(mxs_group_values, weight_decay, 8);
AT(mxs_group_values, momentum, 12);
AT(mxs_group_values, beta1, 16);
AT(mxs_group_values, beta2, 20);
AT(mxs_group_values, epsilon, 24);
AT(mxs_group_values, reserved, 28);

SIZE(mxs_optimizer_options, 80);
AT(mxs_optimizer_options, size, 0);
AT(mxs_optimizer_options, preset, 4);
AT(mxs_optimizer_options, backend, 8);
AT(mxs_optimizer_options, thread_count, 12);
AT(mxs_optimizer_options, agree, 16);
AT(mxs_optimizer_options, agree_context, 24);
AT(mxs_optimizer_options, muon_options, 32);
AT(mxs_optimizer_options, shampoo_options, 40);
AT(mxs_optimizer_options, soap_options, 48);
AT(mxs_optimizer_options, adamw_options, 56);
AT(mxs_optimizer_options, rounding, 64);
AT(mxs_optimizer_options, backup, 68);
AT(mxs_optimizer_options, seed, 72);

SIZE(mxs_step, 40);
AT(mxs_step, size, 0);
AT(mxs_step, group_count, 4);
AT(mxs_step, groups, 8);
AT(mxs_step, gradient_scale, 16);
AT(mxs_step, clip_norm, 20);
AT(mxs_step, missing, 24);
AT(mxs_step, reserved, 28);
AT(mxs_step, stream, 32);

SIZE(mxs_verdict, 32);
AT(mxs_verdict, size, 0);
AT(mxs_verdict, skipped, 4);
AT(mxs_verdict, step_number, 8);
AT(mxs_verdict, norm, 16);
AT(mxs_verdict, clip_factor, 24);
AT(mxs_verdict, found_inf_rank, 28);

SIZE(mxs_state_info, 200);
AT(mxs_state_info, size, 0);
AT(mxs_state_info, tensor, 4);
AT(mxs_state_info, placement, 8);
AT(mxs_state_info, name, 16);
AT(mxs_state_info, view, 24);

SIZE(mxs_kernel_info, 40);
AT(mxs_kernel_info, size, 0);
AT(mxs_kernel_info, rule, 4);
AT(mxs_kernel_info, backend, 8);
AT(mxs_kernel_info, flops, 16);
AT(mxs_kernel_info, product_dtype, 24);
AT(mxs_kernel_info, reserved, 28);
AT(mxs_kernel_info, failed_count, 32);

SIZE(mxs_newton_schulz, 56);
AT(mxs_newton_schulz, size, 0);
AT(mxs_newton_schulz, preset, 4);
AT(mxs_newton_schulz, table, 8);
AT(mxs_newton_schulz, step_count, 12);
AT(mxs_newton_schulz, coefficients, 16);
AT(mxs_newton_schulz, algorithm, 24);
AT(mxs_newton_schulz, backend, 28);
AT(mxs_newton_schulz, thread_count, 32);
AT(mxs_newton_schulz, epsilon_kind, 36);
AT(mxs_newton_schulz, epsilon, 40);
AT(mxs_newton_schulz, safety, 48);

SIZE(mxs_elements, 88);
AT(mxs_elements, size, 0);
AT(mxs_elements, dtype, 4);
AT(mxs_elements, count, 8);
AT(mxs_elements, gradient, 16);
AT(mxs_elements, gradient_scale, 24);
AT(mxs_elements, update_scale, 28);
AT(mxs_elements, momentum, 32);
AT(mxs_elements, update, 40);
AT(mxs_elements, exp_avg, 48);
AT(mxs_elements, exp_avg_sq, 56);
AT(mxs_elements, master, 64);
AT(mxs_elements, weights, 72);
AT(mxs_elements, step_number, 80);

SIZE(mxs_tensor, 168);
AT(mxs_tensor, size, 0);
AT(mxs_tensor, dtype, 4);
AT(mxs_tensor, master_dtype, 8);
AT(mxs_tensor, gradient_dtype, 12);
AT(mxs_tensor, name, 16);
AT(mxs_tensor, dimension_count, 24);
AT(mxs_tensor, unit, 28);
AT(mxs_tensor, shape, 32);
AT(mxs_tensor, rule, 96);
AT(mxs_tensor, group, 100);
AT(mxs_tensor, role, 104);
AT(mxs_tensor, fixed_owner, 108);
AT(mxs_tensor, block_rows, 112);
AT(mxs_tensor, block_count, 120);
AT(mxs_tensor, co_owners, 124);
AT(mxs_tensor, tied_to, 128);
AT(mxs_tensor, block_columns, 136);
AT(mxs_tensor, block_column_count, 144);
AT(mxs_tensor, transposed, 148);
AT(mxs_tensor, whole_rows, 152);
AT(mxs_tensor, whole_columns, 160);

SIZE(mxs_plan_options, 88);
AT(mxs_plan_options, size, 0);
AT(mxs_plan_options, unit_count, 4);
AT(mxs_plan_options, alignment, 8);
AT(mxs_plan_options, flat_bytes, 16);
AT(mxs_plan_options, rank_bytes_max, 24);
AT(mxs_plan_options, matrix_flops_per_second, 32);
AT(mxs_plan_options, memory_bytes_per_second, 40);
AT(mxs_plan_options, step_weight, 48);
AT(mxs_plan_options, bytes_weight, 52);
AT(mxs_plan_options, egress_weight, 56);
AT(mxs_plan_options, co_owners_max, 60);
AT(mxs_plan_options, search_moves_max, 64);
AT(mxs_plan_options, previous, 72);
AT(mxs_plan_options, previous_ranks, 80);

SIZE(mxs_tensor_info, 56);
AT(mxs_tensor_info, size, 0);
AT(mxs_tensor_info, role, 4);
AT(mxs_tensor_info, rule, 8);
AT(mxs_tensor_info, unit, 12);
AT(mxs_tensor_info, group, 16);
AT(mxs_tensor_info, tied_to, 20);
AT(mxs_tensor_info, placement_index, 24);
AT(mxs_tensor_info, placement_count, 32);
AT(mxs_tensor_info, name, 40);
AT(mxs_tensor_info, reason, 48);

SIZE(mxs_placement, 144);
AT(mxs_placement, size, 0);
AT(mxs_placement, tensor, 4);
AT(mxs_placement, block, 8);
AT(mxs_placement, owner, 12);
AT(mxs_placement, unit, 16);
AT(mxs_placement, dimension_count, 20);
AT(mxs_placement, shape, 24);
AT(mxs_placement, element_offset, 88);
AT(mxs_placement, element_count, 96);
AT(mxs_placement, weight_offset, 104);
AT(mxs_placement, gradient_offset, 112);
AT(mxs_placement, matrix_index, 120);
AT(mxs_placement, matrix_count, 128);
AT(mxs_placement, co_owner, 136);
AT(mxs_placement, co_owner_count, 140);

SIZE(mxs_rank_load, 40);
AT(mxs_rank_load, size, 0);
AT(mxs_rank_load, matrix_count, 4);
AT(mxs_rank_load, owned_bytes, 8);
AT(mxs_rank_load, step_flops, 16);
AT(mxs_rank_load, weight_bytes_max, 24);
AT(mxs_rank_load, step_ns, 32);

SIZE(mxs_memory_options, 40);
AT(mxs_memory_options, size, 0);
AT(mxs_memory_options, slots, 4);
AT(mxs_memory_options, gradient_slots, 8);
AT(mxs_memory_options, by_reference, 12);
AT(mxs_memory_options, thread_count, 16);
AT(mxs_memory_options, replicas, 20);
AT(mxs_memory_options, own_slot_units, 24);
AT(mxs_memory_options, own_slot_unit_count, 32);
AT(mxs_memory_options, backup, 36);

SIZE(mxs_memory, 104);
AT(mxs_memory, size, 0);
AT(mxs_memory, reserved, 4);
AT(mxs_memory, weights, 8);
AT(mxs_memory, masters, 16);
AT(mxs_memory, gradients, 24);
AT(mxs_memory, state, 32);
AT(mxs_memory, slack, 40);
AT(mxs_memory, rest, 48);
AT(mxs_memory, slots, 56);
AT(mxs_memory, gradient_slots, 64);
AT(mxs_memory, workspace, 72);
AT(mxs_memory, peak, 80);
AT(mxs_memory, own_slots, 88);
AT(mxs_memory, backup, 96);

SIZE(mxs_rank_info, 24);
AT(mxs_rank_info, size, 0);
AT(mxs_rank_info, node, 4);
AT(mxs_rank_info, local_rank, 8);
AT(mxs_rank_info, local_rank_count, 12);
AT(mxs_rank_info, numa, 16);
AT(mxs_rank_info, rail, 20);

SIZE(mxs_node_info, 16);
AT(mxs_node_info, size, 0);
AT(mxs_node_info, rank_count, 4);
AT(mxs_node_info, rail_count, 8);
AT(mxs_node_info, numa_count, 12);

SIZE(mxs_rail_info, 24);
AT(mxs_rail_info, size, 0);
AT(mxs_rail_info, numa, 4);
AT(mxs_rail_info, name, 8);
AT(mxs_rail_info, bytes_per_second, 16);

SIZE(mxs_link_info, 24);
AT(mxs_link_info, size, 0);
AT(mxs_link_info, same_node, 4);
AT(mxs_link_info, latency_ns, 8);
AT(mxs_link_info, overhead_ns, 12);
AT(mxs_link_info, bytes_per_second, 16);

SIZE(mxs_algorithm_factor, 16);
AT(mxs_algorithm_factor, size, 0);
AT(mxs_algorithm_factor, per_mille, 4);
AT(mxs_algorithm_factor, algorithm, 8);

SIZE(mxs_speeds, 56);
AT(mxs_speeds, size, 0);
AT(mxs_speeds, local_latency_ns, 4);
AT(mxs_speeds, local_overhead_ns, 8);
AT(mxs_speeds, network_latency_ns, 12);
AT(mxs_speeds, network_overhead_ns, 16);
AT(mxs_speeds, factor_count, 20);
AT(mxs_speeds, local_bytes_per_second, 24);
AT(mxs_speeds, network_bytes_per_second, 32);
AT(mxs_speeds, add_bytes_per_second, 40);
AT(mxs_speeds, factors, 48);

SIZE(mxs_view, 176);
AT(mxs_view, size, 0);
AT(mxs_view, dtype, 4);
AT(mxs_view, memory, 8);
AT(mxs_view, dimension_count, 12);
AT(mxs_view, data, 16);
AT(mxs_view, bytes, 24);
AT(mxs_view, shape, 32);
AT(mxs_view, strides, 96);
AT(mxs_view, generation, 160);
AT(mxs_view, unit, 168);
AT(mxs_view, tensor, 172);

SIZE(mxs_call, 32);
AT(mxs_call, size, 0);
AT(mxs_call, priority, 4);
AT(mxs_call, stream, 8);
AT(mxs_call, timeout_ns, 16);
AT(mxs_call, request_out, 24);

SIZE(mxs_unit_options, 56);
AT(mxs_unit_options, size, 0);
AT(mxs_unit_options, gather, 4);
AT(mxs_unit_options, slots, 8);
AT(mxs_unit_options, gradient_slots, 12);
AT(mxs_unit_options, flags, 16);
AT(mxs_unit_options, memory, 20);
AT(mxs_unit_options, algorithm, 24);
AT(mxs_unit_options, buffer, 32);
AT(mxs_unit_options, replicas, 40);
AT(mxs_unit_options, own_slot, 48);
AT(mxs_unit_options, reserved, 52);

SIZE(mxs_unit_info, 72);
AT(mxs_unit_info, size, 0);
AT(mxs_unit_info, unit, 4);
AT(mxs_unit_info, weights_state, 8);
AT(mxs_unit_info, gradients_state, 12);
AT(mxs_unit_info, holders, 16);
AT(mxs_unit_info, gather, 20);
AT(mxs_unit_info, generation, 24);
AT(mxs_unit_info, address, 32);
AT(mxs_unit_info, bytes, 40);
AT(mxs_unit_info, gather_algorithm, 48);
AT(mxs_unit_info, reduce_algorithm, 56);
AT(mxs_unit_info, pages, 64);

SIZE(mxs_matrix, 72);
AT(mxs_matrix, size, 0);
AT(mxs_matrix, tensor, 4);
AT(mxs_matrix, block, 8);
AT(mxs_matrix, owner, 12);
AT(mxs_matrix, placement, 16);
AT(mxs_matrix, element_offset, 24);
AT(mxs_matrix, rows, 32);
AT(mxs_matrix, columns, 40);
AT(mxs_matrix, row_stride, 48);
AT(mxs_matrix, scale_rows, 56);
AT(mxs_matrix, scale_columns, 64);

SIZE(mxs_unit_load, 88);
AT(mxs_unit_load, size, 0);
AT(mxs_unit_load, owner_count, 4);
AT(mxs_unit_load, segment_count, 8);
AT(mxs_unit_load, weight_bytes, 16);
AT(mxs_unit_load, gradient_bytes, 24);
AT(mxs_unit_load, rank_bytes_max, 32);
AT(mxs_unit_load, rank_bytes_bound, 40);
AT(mxs_unit_load, nic_bytes_max, 48);
AT(mxs_unit_load, nic_bytes_bound, 56);
AT(mxs_unit_load, network_bytes, 64);
AT(mxs_unit_load, gather_bound_ns, 72);
AT(mxs_unit_load, rank_of_most_bytes, 80);
AT(mxs_unit_load, node_of_most_bytes, 84);

SIZE(mxs_objective, 32);
AT(mxs_objective, size, 0);
AT(mxs_objective, rank, 4);
AT(mxs_objective, unit, 8);
AT(mxs_objective, reserved, 12);
AT(mxs_objective, worst, 16);
AT(mxs_objective, bound, 24);

SIZE(mxs_plan_move, 56);
AT(mxs_plan_move, size, 0);
AT(mxs_plan_move, tensor, 4);
AT(mxs_plan_move, source_rank, 8);
AT(mxs_plan_move, target_rank, 12);
AT(mxs_plan_move, source_placement, 16);
AT(mxs_plan_move, target_placement, 24);
AT(mxs_plan_move, element_offset, 32);
AT(mxs_plan_move, element_count, 40);
AT(mxs_plan_move, bytes, 48);

SIZE(mxs_layout_move, 40);
AT(mxs_layout_move, size, 0);
AT(mxs_layout_move, source_rank, 4);
AT(mxs_layout_move, target_rank, 8);
AT(mxs_layout_move, reserved, 12);
AT(mxs_layout_move, source_offset, 16);
AT(mxs_layout_move, target_offset, 24);
AT(mxs_layout_move, bytes, 32);

SIZE(mxs_model_rule, 24);
AT(mxs_model_rule, size, 0);
AT(mxs_model_rule, rule, 4);
AT(mxs_model_rule, pattern, 8);
AT(mxs_model_rule, group, 16);
AT(mxs_model_rule, reserved, 20);

SIZE(mxs_model_options, 40);
AT(mxs_model_options, size, 0);
AT(mxs_model_options, dtype, 4);
AT(mxs_model_options, master_dtype, 8);
AT(mxs_model_options, gradient_dtype, 12);
AT(mxs_model_options, rules, 16);
AT(mxs_model_options, rule_count, 24);
AT(mxs_model_options, matrix_rule, 32);
AT(mxs_model_options, reserved, 36);

SIZE(mxs_strides, 24);
AT(mxs_strides, size, 0);
AT(mxs_strides, reserved, 4);
AT(mxs_strides, row, 8);
AT(mxs_strides, matrix, 16);

SIZE(mxs_muon_options, 56);
AT(mxs_muon_options, size, 0);
AT(mxs_muon_options, preset, 4);
AT(mxs_muon_options, momentum, 8);
AT(mxs_muon_options, nesterov, 12);
AT(mxs_muon_options, scale, 16);
AT(mxs_muon_options, scale_factor, 20);
AT(mxs_muon_options, decay, 24);
AT(mxs_muon_options, normuon, 28);
AT(mxs_muon_options, normuon_beta2, 32);
AT(mxs_muon_options, normuon_epsilon, 36);
AT(mxs_muon_options, newton_schulz, 40);
AT(mxs_muon_options, thread_count, 48);
AT(mxs_muon_options, backend, 52);

SIZE(mxs_shampoo_options, 56);
AT(mxs_shampoo_options, size, 0);
AT(mxs_shampoo_options, preset, 4);
AT(mxs_shampoo_options, block_max, 8);
AT(mxs_shampoo_options, interval, 12);
AT(mxs_shampoo_options, start, 16);
AT(mxs_shampoo_options, grafting, 20);
AT(mxs_shampoo_options, decay, 24);
AT(mxs_shampoo_options, failures_max, 28);
AT(mxs_shampoo_options, nesterov, 32);
AT(mxs_shampoo_options, momentum, 36);
AT(mxs_shampoo_options, exponent, 40);
AT(mxs_shampoo_options, backend, 48);
AT(mxs_shampoo_options, thread_count, 52);

SIZE(mxs_soap_options, 40);
AT(mxs_soap_options, size, 0);
AT(mxs_soap_options, preset, 4);
AT(mxs_soap_options, side_max, 8);
AT(mxs_soap_options, interval, 12);
AT(mxs_soap_options, one_sided, 16);
AT(mxs_soap_options, factor_beta, 20);
AT(mxs_soap_options, decay, 24);
AT(mxs_soap_options, failures_max, 28);
AT(mxs_soap_options, backend, 32);
AT(mxs_soap_options, thread_count, 36);

SIZE(mxs_adamw_options, 24);
AT(mxs_adamw_options, size, 0);
AT(mxs_adamw_options, preset, 4);
AT(mxs_adamw_options, decay, 8);
AT(mxs_adamw_options, epsilon_before, 12);
AT(mxs_adamw_options, thread_count, 16);
AT(mxs_adamw_options, reserved, 20);

SIZE(mxs_matrices, 144);
AT(mxs_matrices, size, 0);
AT(mxs_matrices, dtype, 4);
AT(mxs_matrices, gradient_dtype, 8);
AT(mxs_matrices, weights, 12);
AT(mxs_matrices, rows, 16);
AT(mxs_matrices, columns, 24);
AT(mxs_matrices, count, 32);
AT(mxs_matrices, weight_strides, 40);
AT(mxs_matrices, gradient_strides, 64);
AT(mxs_matrices, block_rows, 88);
AT(mxs_matrices, block_count, 96);
AT(mxs_matrices, heads, 100);
AT(mxs_matrices, transposed, 104);
AT(mxs_matrices, rounding, 108);
AT(mxs_matrices, seed, 112);
AT(mxs_matrices, tensor_id, 120);
AT(mxs_matrices, scale_rows, 128);
AT(mxs_matrices, scale_columns, 136);

SIZE(mxs_state_part, 104);
AT(mxs_state_part, size, 0);
AT(mxs_state_part, dtype, 4);
AT(mxs_state_part, name, 8);
AT(mxs_state_part, offset, 16);
AT(mxs_state_part, bytes, 24);
AT(mxs_state_part, dimension_count, 32);
AT(mxs_state_part, reserved, 36);
AT(mxs_state_part, shape, 40);

SIZE(mxs_step_call, 72);
AT(mxs_step_call, size, 0);
AT(mxs_step_call, reserved, 4);
AT(mxs_step_call, values, 8);
AT(mxs_step_call, gradient, 16);
AT(mxs_step_call, weights, 24);
AT(mxs_step_call, master, 32);
AT(mxs_step_call, state, 40);
AT(mxs_step_call, workspace, 48);
AT(mxs_step_call, workspace_bytes, 56);
AT(mxs_step_call, gradient_scale, 64);
AT(mxs_step_call, clip_factor, 68);

SIZE(mxs_step_result, 40);
AT(mxs_step_result, size, 0);
AT(mxs_step_result, skipped, 4);
AT(mxs_step_result, step_number, 8);
AT(mxs_step_result, skipped_count, 16);
AT(mxs_step_result, failed_count, 24);
AT(mxs_step_result, gradient_norm, 32);

SIZE(mxs_stepper_info, 48);
AT(mxs_stepper_info, size, 0);
AT(mxs_stepper_info, rule, 4);
AT(mxs_stepper_info, preset, 8);
AT(mxs_stepper_info, thread_count, 12);
AT(mxs_stepper_info, backend, 16);
AT(mxs_stepper_info, passes, 24);
AT(mxs_stepper_info, product_dtype, 32);
AT(mxs_stepper_info, reserved, 36);
AT(mxs_stepper_info, flops, 40);

SIZE(mxs_extra_tensor, 96);
AT(mxs_extra_tensor, size, 0);
AT(mxs_extra_tensor, dimension_count, 4);
AT(mxs_extra_tensor, name, 8);
AT(mxs_extra_tensor, dtype, 16);
AT(mxs_extra_tensor, data, 24);
AT(mxs_extra_tensor, shape, 32);

SIZE(mxs_checkpoint_options, 88);
AT(mxs_checkpoint_options, size, 0);
AT(mxs_checkpoint_options, masters, 4);
AT(mxs_checkpoint_options, weights_only, 8);
AT(mxs_checkpoint_options, keep, 12);
AT(mxs_checkpoint_options, name, 16);
AT(mxs_checkpoint_options, files_from, 24);
AT(mxs_checkpoint_options, user, 32);
AT(mxs_checkpoint_options, user_bytes, 40);
AT(mxs_checkpoint_options, extras, 48);
AT(mxs_checkpoint_options, extra_count, 56);
AT(mxs_checkpoint_options, progress, 64);
AT(mxs_checkpoint_options, progress_context, 72);
AT(mxs_checkpoint_options, timeout_ns, 80);

SIZE(mxs_save_info, 40);
AT(mxs_save_info, size, 0);
AT(mxs_save_info, finished, 4);
AT(mxs_save_info, done_bytes, 8);
AT(mxs_save_info, total_bytes, 16);
AT(mxs_save_info, snapshot_bytes, 24);
AT(mxs_save_info, path, 32);

SIZE(mxs_checkpoint_info, 72);
AT(mxs_checkpoint_info, size, 0);
AT(mxs_checkpoint_info, has_manifest, 4);
AT(mxs_checkpoint_info, rank_count, 8);
AT(mxs_checkpoint_info, group_count, 12);
AT(mxs_checkpoint_info, masters, 16);
AT(mxs_checkpoint_info, has_state, 20);
AT(mxs_checkpoint_info, step_number, 24);
AT(mxs_checkpoint_info, file_count, 32);
AT(mxs_checkpoint_info, array_count, 40);
AT(mxs_checkpoint_info, bytes, 48);
AT(mxs_checkpoint_info, path, 56);
AT(mxs_checkpoint_info, version, 64);

SIZE(mxs_checkpoint_array, 144);
AT(mxs_checkpoint_array, size, 0);
AT(mxs_checkpoint_array, kind, 4);
AT(mxs_checkpoint_array, dtype, 8);
AT(mxs_checkpoint_array, dimension_count, 12);
AT(mxs_checkpoint_array, shape, 16);
AT(mxs_checkpoint_array, bytes, 80);
AT(mxs_checkpoint_array, file_offset, 88);
AT(mxs_checkpoint_array, name, 96);
AT(mxs_checkpoint_array, dtype_word, 104);
AT(mxs_checkpoint_array, file, 112);
AT(mxs_checkpoint_array, tensor, 120);
AT(mxs_checkpoint_array, part, 128);
AT(mxs_checkpoint_array, piece_count, 136);
AT(mxs_checkpoint_array, reserved, 140);

SIZE(mxs_verify_options, 40);
AT(mxs_verify_options, size, 0);
AT(mxs_verify_options, reserved, 4);
AT(mxs_verify_options, fault, 8);
AT(mxs_verify_options, fault_context, 16);
AT(mxs_verify_options, progress, 24);
AT(mxs_verify_options, progress_context, 32);

SIZE(mxs_load_options, 48);
AT(mxs_load_options, size, 0);
AT(mxs_load_options, flags, 4);
AT(mxs_load_options, tell, 8);
AT(mxs_load_options, tell_context, 16);
AT(mxs_load_options, progress, 24);
AT(mxs_load_options, progress_context, 32);
AT(mxs_load_options, timeout_ns, 40);

SIZE(mxs_cuda_info, 24);
AT(mxs_cuda_info, size, 0);
AT(mxs_cuda_info, device_count, 4);
AT(mxs_cuda_info, driver_version, 8);
AT(mxs_cuda_info, nccl_version, 12);
AT(mxs_cuda_info, nccl, 16);

SIZE(mxs_cuda_device, 72);
AT(mxs_cuda_device, size, 0);
AT(mxs_cuda_device, index, 4);
AT(mxs_cuda_device, name, 8);
AT(mxs_cuda_device, pci_address, 16);
AT(mxs_cuda_device, major, 24);
AT(mxs_cuda_device, minor, 28);
AT(mxs_cuda_device, multiprocessors, 32);
AT(mxs_cuda_device, numa_node, 36);
AT(mxs_cuda_device, total_bytes, 40);
AT(mxs_cuda_device, free_bytes, 48);
AT(mxs_cuda_device, granule_bytes, 56);
AT(mxs_cuda_device, nic, 64);

SIZE(mxs_recovery, 40);
AT(mxs_recovery, size, 0);
AT(mxs_recovery, lost_count, 4);
AT(mxs_recovery, step_number, 8);
AT(mxs_recovery, newest_step, 16);
AT(mxs_recovery, bytes_in, 24);
AT(mxs_recovery, bytes_restored, 32);

SIZE(mxs_trace_event, 80);
AT(mxs_trace_event, size, 0);
AT(mxs_trace_event, rank, 4);
AT(mxs_trace_event, kind, 8);
AT(mxs_trace_event, peer, 12);
AT(mxs_trace_event, unit, 16);
AT(mxs_trace_event, phase, 20);
AT(mxs_trace_event, sequence, 24);
AT(mxs_trace_event, begin_ns, 32);
AT(mxs_trace_event, end_ns, 40);
AT(mxs_trace_event, bytes_out, 48);
AT(mxs_trace_event, bytes_in, 56);
AT(mxs_trace_event, name, 64);
AT(mxs_trace_event, algorithm, 72);

SIZE(mxs_trace_rank, 72);
AT(mxs_trace_rank, size, 0);
AT(mxs_trace_rank, rank, 4);
AT(mxs_trace_rank, process, 8);
AT(mxs_trace_rank, alive, 12);
AT(mxs_trace_rank, finished, 16);
AT(mxs_trace_rank, reserved, 20);
AT(mxs_trace_rank, event_count, 24);
AT(mxs_trace_rank, lost_count, 32);
AT(mxs_trace_rank, last_operation, 40);
AT(mxs_trace_rank, last_complete, 48);
AT(mxs_trace_rank, host, 56);
AT(mxs_trace_rank, failure, 64);
