"""Jobs of several ranks: each test runs a case of a program in `programs` by `weft run`."""

import pytest

SHM = {"WEFT_LINK": "shm"}
FAULTS = {"WEFT_LINK": "udp", "WEFT_FAULTS": "loss=2%,dup=1%,reorder=1%,seed=5"}
SOON = {"WEFT_WARN_AFTER_MS": "200"}


def on(shm=(), faults=()):
    """Runs a test with as many ranks over shared memory, and over UDP with faults."""
    jobs = [(count, SHM, f"{count}-shm") for count in shm]
    jobs += [(count, FAULTS, f"{count}-faults") for count in faults]
    return pytest.mark.parametrize(
        "count, link", [pytest.param(count, link, id=name) for count, link, name in jobs])


@on(shm=(2, 4), faults=(2, 4))
def test_messages_of_all_lengths_and_kinds(ranks, count, link):
    ranks("ranks.py", "messages", count, link)


@on(shm=(2,), faults=(2,))
def test_locked_buffers_signals_threads_and_forks(ranks, count, link):
    ranks("ranks.py", "misuse", count, link)


@on(shm=(1, 2, 5), faults=(4,))
def test_collectives_with_bytes_buffers_and_numbers(ranks, count, link):
    ranks("ranks.py", "collectives", count, link)


@on(shm=(2,), faults=(2,))
def test_awaits_of_many_requests_and_of_one_that_is_cancelled(ranks, count, link):
    ranks("ranks.py", "awaits", count, link)


@on(shm=(3,), faults=(3,))
def test_receives_from_any_rank_end_when_all_have_left(ranks, count, link):
    ranks("ranks.py", "leaves", count, link | SOON)


@on(shm=(3,), faults=(3,))
def test_regions_of_all_types_and_their_memory_stays(ranks, count, link):
    ranks("ranks.py", "regions", count, link)


@on(shm=(1, 3), faults=(3,))
def test_queues_give_jobs_to_their_owners_until_none_is_left(ranks, count, link):
    ranks("ranks.py", "queues", count, link)


@on(shm=(1, 3), faults=(3,))
def test_objects_replicated_and_at_a_rank_with_guards_and_exceptions(ranks, count, link):
    ranks("ranks.py", "objects", count, link)


@on(shm=(1, 3), faults=(3,))
def test_adaptive_objects_move_and_lose_no_operation(ranks, count, link):
    ranks("ranks.py", "adaptive", count, link)


@on(shm=(2,))
def test_limits_of_arguments_and_results(ranks, count, link):
    ranks("ranks.py", "limits", count, link)


@on(shm=(1, 2), faults=(2,))
def test_placed_values_of_all_kinds_arrive_as_they_were(ranks, count, link):
    ranks("placed.py", "values", count, link)


@on(shm=(1, 3), faults=(2,))
def test_placed_failures_of_posts_and_of_arguments_are_told(ranks, count, link):
    ranks("placed.py", "failures", count, link)


@on(shm=(1, 3), faults=(2,))
def test_placed_operations_are_consistent_with_those_of_replicated_objects(ranks, count, link):
    ranks("placed.py", "order", count, link)


@on(shm=(2,), faults=(2,))
def test_placed_threads_call_at_once_and_lose_no_call(ranks, count, link):
    ranks("placed.py", "threads", count, link)


@on(shm=(2,), faults=(2,))
def test_placed_interrupt_waits_for_the_end_of_an_operation(ranks, count, link):
    ranks("placed.py", "interrupts", count, link)


@on(shm=(2,), faults=(2,))
def test_placed_calls_of_a_rank_that_has_left_end(ranks, count, link):
    ranks("placed.py", "leaves", count, link)


@on(shm=(2,))
def test_placed_class_inside_a_function_is_refused(ranks, count, link):
    ranks("placed.py", "local", count, link)


@on(shm=(3,), faults=(3,))
def test_frozen_reads_that_change_are_told_and_replicas_stay_equal(ranks, count, link):
    ranks("frozen.py", "reads", count, link)


@on(shm=(3,), faults=(3,))
def test_frozen_guards_that_change_are_told_and_replicas_stay_equal(ranks, count, link):
    ranks("frozen.py", "guards", count, link)


@on(shm=(3,))
def test_frozen_objects_that_move_stay_equal(ranks, count, link):
    ranks("frozen.py", "moves", count, link)


@on(shm=(2,))
def test_faulty_each_call_is_answered_whatever_its_method_raises(ranks, count, link):
    ranks("faulty.py", "answers", count, link)


@on(shm=(2,))
def test_faulty_operations_of_base_classes_are_there_or_replaced(ranks, count, link):
    ranks("faulty.py", "bases", count, link)


@on(shm=(2,))
def test_faulty_interrupt_of_another_thread_waits_for_the_end_of_an_operation(ranks, count, link):
    ranks("faulty.py", "interrupts", count, link)


@on(shm=(2,))
def test_faulty_handlers_of_all_signals_wait_for_the_end_of_an_operation(ranks, count, link):
    ranks("faulty.py", "handlers", count, link)


@on(shm=(2,))
def test_faulty_copies_of_the_process_end_also_while_an_operation_is_executed(ranks, count, link):
    ranks("faulty.py", "copies", count, link)


@on(shm=(2,))
def test_faulty_ranks_with_other_programs_are_told(ranks, count, link):
    ranks("faulty.py", "programs", count, link)


@on(shm=(2,))
def test_faulty_operation_that_would_wait_is_refused(ranks, count, link):
    ranks("faulty.py", "waiting", count, link)


@on(shm=(2,))
def test_faulty_stack_that_is_too_deep_at_one_rank_is_told(ranks, count, link):
    ranks("faulty.py", "deep", count, link)


@on(shm=(2,))
def test_faulty_any_element_of_a_set_is_the_same_on_all_ranks(ranks, count, link):
    ranks("faulty.py", "sets", count, link)


@on(shm=(2,), faults=(2,))
def test_faulty_operations_come_behind_the_posts_of_their_rank(ranks, count, link):
    ranks("faulty.py", "posts", count, link)


@on(shm=(2,))
def test_faulty_rank_that_tests_requests_executes_operations_of_others(ranks, count, link):
    ranks("faulty.py", "awaits", count, link)


@on(shm=(3,), faults=(3,))
def test_views_adaptive_object_does_not_move_to_a_rank_that_has_ended(ranks, count, link):
    ranks("views.py", "moves", count, link)


@on(shm=(3,), faults=(3,))
def test_views_guarded_operation_of_a_rank_that_has_ended_is_not_done(ranks, count, link):
    ranks("views.py", "guards", count, link)


@on(shm=(3,), faults=(3,))
def test_views_state_of_an_object_comes_from_one_rank(ranks, count, link):
    ranks("views.py", "made", count, link)


@on(shm=(2,), faults=(2,))
def test_views_deleted_objects_are_gone_on_all_ranks(ranks, count, link):
    ranks("views.py", "deleted", count, link)


@on(shm=(2,), faults=(2,))
def test_views_calls_that_take_too_long_name_other_ranks(ranks, count, link):
    ranks("views.py", "timeouts", count, link)


@on(shm=(3,), faults=(3,))
def test_views_rank_that_looks_by_writes_serves_others(ranks, count, link):
    ranks("views.py", "looks", count, link)


@on(shm=(1, 3), faults=(3,))
def test_driven_token_passes_and_reductions_come_in_order(ranks, count, link):
    ranks("driven.py", "ring", count, link)


@on(shm=(1, 3), faults=(3,))
def test_driven_priorities_sections_and_messages_between_arrays(ranks, count, link):
    ranks("driven.py", "grid", count, link)


@on(shm=(1, 3), faults=(3,))
def test_driven_objects_move_with_their_states_and_messages_follow(ranks, count, link):
    ranks("driven.py", "moves", count, link)


@on(shm=(1, 3), faults=(3,))
def test_driven_checkpoints_are_read_and_damaged_ones_refused(ranks, count, link):
    ranks("driven.py", "files", count, link)


@on(shm=(3,))
def test_driven_exception_of_a_turn_ends_the_run_on_all_ranks(ranks, count, link):
    ranks("driven.py", "fails", count, link)


@on(shm=(3,))
def test_driven_turn_that_would_wait_ends_the_run(ranks, count, link):
    ranks("driven.py", "waits", count, link)


@on(shm=(3,))
def test_driven_message_to_an_index_that_is_not_there_ends_the_run(ranks, count, link):
    ranks("driven.py", "far", count, link)


@on(shm=(3,))
def test_driven_object_that_cannot_be_sent_ends_the_run(ranks, count, link):
    ranks("driven.py", "stuck", count, link)


@on(shm=(3,))
def test_driven_contributions_of_different_operations_end_the_run(ranks, count, link):
    ranks("driven.py", "uneven", count, link)


@on(shm=(3,))
def test_driven_interrupt_waits_for_the_end_of_a_turn_and_the_run_goes_on(ranks, count, link):
    ranks("driven.py", "interrupt", count, link)


@on(shm=(3,))
def test_driven_wrong_arguments_are_refused(ranks, count, link):
    ranks("driven.py", "arguments", count, link)


@on(shm=(2,), faults=(2,))
def test_driven_death_of_a_rank_ends_the_run_with_its_name(ranks, count, link):
    ranks("driven.py", "death", count, link)


def test_guard_that_nobody_makes_true_is_told(ranks):
    said = ranks("ranks.py", "waits", 2, SHM | SOON)
    assert "rank 0 waits for 0." in said
    assert "Stack.at_least of 'empty', whose guard may not be true" in said


def test_numbers_of_numpy_are_combined_and_sent(ranks):
    pytest.importorskip("numpy")
    ranks("ranks.py", "scalars", 2, SHM)


def test_names_claims_look_ups_events_and_messages(ranks, agent):
    ranks("ranks.py", "names", 3, {"WEFT_LINK": "udp", "WEFT_AGENT": agent})
