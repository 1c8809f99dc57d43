//! The output of a connection, in the hands of a sender or of the task.

use super::*;

/// Queues commands, and takes the output if their sender flushes them.
fn begin_write(shared: &Shared) -> Option<Output> {
    let mut state = shared.lock();
    for _ in 0..EARLY_FLUSH {
        let slot = state.slots.add();
        let ping = |out: &mut Vec<u8>| out.extend(b"*1\r\n$4\r\nPING\r\n");
        state.queue.push(slot, 1, true, ping);
    }
    state.flush_early(shared)
}

/// Commands that a test sends before the task runs.
struct Burst {
    wire: Wire,
    server: DuplexStream,
    sent: Vec<PendingReplies>,
}

impl Burst {
    /// Begins with a lone command, which the server has received.
    async fn begin(buffer: usize, early_flush: usize) -> Self {
        let (here, mut server) = tokio::io::duplex(buffer);
        let wire = over(here, LONG);
        wire.0.lock().early_flush = early_flush;
        let sent = vec![begin(&wire, "word")];
        assert_eq!(arrived(&mut server).await.matches("word").count(), 1);
        Self { wire, server, sent }
    }

    fn send(&mut self, count: usize) {
        let sent = (0..count).map(|_| begin(&self.wire, "word"));
        self.sent.extend(sent);
    }

    fn send_in_batch(&self, count: usize) -> Vec<PendingReplies> {
        let script = batch_script();
        let send = |key: usize| {
            let command = BatchCommand {
                script: &script,
                key: &key.to_be_bytes(),
                arguments: [b"", b""],
            };
            self.wire.begin_in_batch(&command).unwrap()
        };
        (0..count).map(send).collect()
    }

    fn begin_write(&self) -> Option<Output> {
        begin_write(&self.wire.0)
    }

    async fn arrived(&mut self) -> usize {
        arrived(&mut self.server).await.matches("word").count()
    }

    fn queued(&self) -> usize {
        self.wire.0.lock().queue.len()
    }

    fn is_written(&self) -> bool {
        let state = self.wire.0.lock();
        state.output.as_ref().is_some_and(Output::is_empty)
    }

    /// Lets the task run, and replies to everything.
    async fn end(mut self) {
        let replies = "$4\r\nword\r\n".repeat(self.sent.len());
        let server = async {
            while self.queued() > 0 || !self.is_written() {
                self.arrived().await;
                tokio::task::yield_now().await;
            }
            let sent = mem::take(&mut self.sent);
            let delivered = async {
                for pending in sent {
                    assert_eq!(first_of(pending).await.unwrap(), bulk("word"));
                }
            };
            let (written, ()) = tokio::join!(self.server.write_all(replies.as_bytes()), delivered);
            written.unwrap();
        };
        tokio::time::timeout(BOUND, server).await.expect("a reply");
        assert_eq!(self.wire.0.lock().slots.used(), 0);
    }
}

#[tokio::test]
async fn a_sender_writes_the_queue_when_it_is_long_beside_what_is_in_flight() {
    let mut burst = Burst::begin(1 << 16, EARLY_FLUSH).await;
    for due in [4, 4, 4, 6, 9, 14, 21, 31] {
        burst.send(due - 1);
        assert_eq!((burst.queued(), burst.arrived().await), (due - 1, 0));
        burst.send(1);
        assert_eq!((burst.queued(), burst.arrived().await), (0, due));
        assert_eq!(burst.wire.0.lock().last_batch, due);
    }
    // The others are the task's.
    burst.send(5);
    assert_eq!((burst.queued(), burst.arrived().await), (5, 0));
    settle().await;
    assert_eq!((burst.queued(), burst.arrived().await), (0, 5));
    burst.end().await;
}

#[tokio::test]
async fn a_sender_leaves_batches_to_the_task() {
    let mut burst = Burst::begin(1 << 16, EARLY_FLUSH).await;
    let batched = burst.send_in_batch(10);
    burst.send(3);
    assert_eq!((burst.queued(), burst.arrived().await), (13, 0));
    burst.send(1);
    assert_eq!((burst.queued(), burst.arrived().await), (10, 4));
    settle().await;
    assert_eq!(burst.queued(), 0);
    assert!(arrived(&mut burst.server).await.contains("many"));
    burst.server.write_all(&b"+OK\r\n".repeat(5)).await.unwrap();
    burst.server.write_all(b":1\r\n").await.unwrap();
    for pending in batched {
        assert_eq!(first_of(pending).await.unwrap(), Value::Int(1));
    }
}

#[tokio::test]
async fn a_sender_flushes_no_claim_into_the_last_places() {
    let mut burst = Burst::begin(1 << 20, EARLY_FLUSH).await;
    burst.send(2 * MAX_IN_FLIGHT);
    assert!(burst.wire.0.lock().in_flight.len() < MAX_IN_FLIGHT);

    let mut burst = Burst::begin(1 << 20, EARLY_FLUSH).await;
    let _completions = burst.send_in_batch(MAX_IN_FLIGHT - EARLY_FLUSH);
    burst.send(EARLY_FLUSH);
    assert_eq!(burst.arrived().await, 0);
}

/// The thread of each sender is interrupted when it writes, until the task has run.
#[tokio::test]
async fn senders_do_not_keep_the_task_from_the_output() {
    let mut burst = Burst::begin(1 << 20, EARLY_FLUSH).await;
    let mut completions = burst.send_in_batch(1);
    for _ in 0..2 {
        let output = burst.begin_write();
        settle().await;
        if let Some(output) = output {
            burst.wire.0.write(output);
        }
    }
    settle().await;
    assert_eq!(burst.queued(), 0);
    let received = arrived(&mut burst.server).await;
    let (before, _) = received.split_once("one").expect("the completion");
    assert_eq!(before.matches("PING").count(), EARLY_FLUSH);
    let replies = "+PONG\r\n".repeat(EARLY_FLUSH);
    let replies = format!("$4\r\nword\r\n{replies}:1\r\n");
    burst.server.write_all(replies.as_bytes()).await.unwrap();
    let completion = first_of(completions.pop().unwrap()).await;
    assert_eq!(completion.unwrap(), Value::Int(1));
}

#[tokio::test]
async fn a_sender_leaves_the_queue_to_the_task() {
    // On a single processor, and while the socket is full.
    for (buffer, early_flush, queued) in [(1 << 16, usize::MAX, 108), (50, EARLY_FLUSH, 104)] {
        let mut burst = Burst::begin(buffer, early_flush).await;
        burst.send(4);
        burst.send(104);
        assert_eq!(burst.queued(), queued);
        burst.end().await;
    }
}

#[tokio::test]
async fn senders_queue_while_a_write_lasts() {
    let (here, mut server) = tokio::io::duplex(1 << 16);
    let (read, half) = tokio::io::split(here);
    let (cell, writes) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
    let (its_wire, its_writes) = (Arc::clone(&cell), Arc::clone(&writes));
    let before = move || {
        let wire = its_wire.get().and_then(Weak::<Wire>::upgrade);
        let wire = wire.expect("it is written between its start and its end");
        assert!(wire.0.state.try_lock().is_ok(), "a write has the lock");
        // Its sender leaves it.
        drop(begin(&wire, "word"));
        its_writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let wire = Arc::new(Wire::new(read, Hooked { half, before }, within(LONG)));
    assert!(cell.set(Arc::downgrade(&wire)).is_ok());
    wire.0.lock().early_flush = EARLY_FLUSH;
    // The sender of a lone command, the task, and the sender of the last command of a queue.
    for (count, arrives) in [(1, 1), (1, 0), (EARLY_FLUSH, EARLY_FLUSH)] {
        let before = writes.load(Ordering::Relaxed);
        let sent: Vec<_> = (0..count).map(|_| begin(&wire, "word")).collect();
        assert_eq!(arrived(&mut server).await.matches("word").count(), arrives);
        settle().await;
        let late = arrived(&mut server).await.matches("word").count();
        assert_eq!(arrives + late, count);
        assert_eq!(writes.load(Ordering::Relaxed), before + 1);
        mem::forget(sent);
    }
}

#[tokio::test]
async fn the_task_flushes_what_is_queued_while_a_sender_writes() {
    let mut burst = Burst::begin(1 << 16, EARLY_FLUSH).await;
    let output = burst.wire.0.lock().output.take().unwrap();
    burst.send(2);
    settle().await;
    assert_eq!((burst.queued(), burst.arrived().await), (2, 0));
    burst.wire.0.write(output);
    settle().await;
    assert_eq!((burst.queued(), burst.arrived().await), (0, 2));
    burst.end().await;
}

#[tokio::test]
async fn the_task_writes_what_the_socket_does_not_take_from_a_sender() {
    let mut burst = Burst::begin(50, EARLY_FLUSH).await;
    settle().await;
    // Without a timer the task would be woken for that.
    assert!(burst.wire.0.lock().is_timed);
    burst.send(EARLY_FLUSH);
    assert_eq!(burst.queued(), 0);
    assert!(!burst.is_written());
    burst.end().await;
}

#[tokio::test]
async fn the_task_finds_the_error_of_a_sender() {
    let (here, _server) = tokio::io::duplex(1 << 16);
    let (read, half) = tokio::io::split(here);
    let fails = Arc::new(AtomicBool::new(false));
    let its_fails = Arc::clone(&fails);
    // Once, as a socket does.
    let before = move || {
        if its_fails.swap(false, Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    };
    let wire = Wire::new(read, Hooked { half, before }, within(LONG));
    let _one = begin(&wire, "one");
    settle().await;
    wire.0.lock().in_flight.clear();
    assert!(wire.0.lock().is_timed && wire.0.lock().is_idle());
    fails.store(true, Ordering::SeqCst);
    let lost = tokio::time::timeout(BOUND, first_of(begin(&wire, "two"))).await;
    assert!(breaks_connection(&lost.expect("an error").unwrap_err()));
}

#[tokio::test]
async fn a_connection_that_ends_while_a_sender_writes_stays_ended() {
    let burst = Burst::begin(1 << 16, EARLY_FLUSH).await;
    let output = burst.wire.0.lock().output.take().unwrap();
    drop(burst.server);
    for pending in burst.sent {
        assert!(first_of(pending).await.is_err());
    }
    // As its owner does.
    burst.wire.close();
    burst.wire.0.write(output);
    assert!(burst.wire.0.lock().output.is_none());
    assert!(burst.wire.begin(&said("word"), None, false).is_err());
}

#[tokio::test]
async fn senders_flush_again_after_a_task_that_waited_for_the_output() {
    let mut burst = Burst::begin(1 << 20, EARLY_FLUSH).await;
    let _completions = burst.send_in_batch(1);
    let output = burst.begin_write().expect("it is due");
    settle().await;
    assert!(burst.wire.0.lock().awaits_output);
    burst.wire.0.write(output);
    settle().await;
    assert_eq!(burst.queued(), 0);
    assert!(!burst.wire.0.lock().awaits_output);
    burst.send(EARLY_FLUSH);
    assert_eq!(burst.queued(), 0, "a sender flushes");
}

/// A sender on another thread, between the wake of the task and its second turn.
#[tokio::test]
async fn a_task_that_waited_for_the_output_flushes_in_its_next_turn() {
    let mut burst = Burst::begin(1 << 20, EARLY_FLUSH).await;
    let _completions = burst.send_in_batch(1);
    let output = burst.begin_write().expect("it is due");
    settle().await;
    burst.wire.0.write(output);
    let shared = Arc::clone(&burst.wire.0);
    tokio::spawn(async move {
        if let Some(output) = begin_write(&shared) {
            shared.write(output);
        }
    });
    settle().await;
    let received = arrived(&mut burst.server).await;
    let (before, _) = received.split_once("one").expect("the completion");
    assert_eq!(before.matches("PING").count(), EARLY_FLUSH);
}
