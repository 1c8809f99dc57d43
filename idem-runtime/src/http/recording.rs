//! A streamed response, recorded while it is sent.
//!
//! The [`StreamRecorder`] reads the stream as fast as it comes, whether or not its client does, and the client's body
//! reads the recording: one buffer serves both. Once the recorder ends before the stream, the client's body reads the
//! stream itself.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use ::http::{HeaderMap, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::task::consume_budget;

use crate::env::catch_unwind::{Panic, unwind};
use crate::env::lock::Lock;

/// The panic of a client's body whose stream was dropped.
const CANCELLED: &str =
    "the lease was lost, and the stream was dropped for that, as `on_lease_lost = cancel` requires";

/// The longest frame that is copied for the client during the stream.
const FRAME: usize = 32 << 10;

/// The part of a stream that its recorder and its client share.
struct StreamRecording<B: Body> {
    /// The data so far; moved into `whole` at the end.
    data: BytesMut,
    whole: Bytes,
    /// The part of it that the client has got.
    passed: usize,
    /// The declared length of the stream.
    length: Option<u64>,
    /// `None`: the recorder reads it.
    end: Option<StreamEnd<B>>,
    /// The client waits for more.
    client: Option<Waker>,
}

/// The end of a stream, or of its recording.
enum StreamEnd<B: Body> {
    Whole(Option<HeaderMap>),
    Broken(B::Error),
    Panicked(Panic),
    /// The recorder reads it no further.
    Rest(Pin<Box<B>>),
}

/// The end of a recording.
pub(super) enum Recorded {
    /// All of the stream.
    Whole(Bytes, Option<HeaderMap>),
    /// The stream exceeds the limit.
    TooLarge,
    /// The stream has ended with an error or a panic.
    Broken,
}

/// Reads a stream.
///
/// Dropped before the end of it, it leaves the rest to the client, unless it is cancelled.
pub(super) struct StreamRecorder<B: Body> {
    recording: Arc<Lock<StreamRecording<B>>>,
    /// `None`: it has ended.
    stream: Option<Pin<Box<B>>>,
    /// The response without its body.
    pub(super) head: Response<()>,
    max_bytes: usize,
    /// Whether the stream is dropped with this.
    pub(super) is_cancelled: Arc<AtomicBool>,
}

/// The body of a recorded stream, as its client gets it.
pub(super) struct RecordedBody<B: Body>(Arc<Lock<StreamRecording<B>>>);

impl<B: Body> StreamRecorder<B> {
    /// The recorder of a stream up to `max_bytes`, and the client's body.
    pub(super) fn new(
        stream: B,
        head: Response<()>,
        max_bytes: usize,
    ) -> (Box<Self>, RecordedBody<B>) {
        let recording = Arc::new(Lock::new(StreamRecording {
            data: BytesMut::new(),
            whole: Bytes::new(),
            passed: 0,
            length: stream.size_hint().exact(),
            end: None,
            client: None,
        }));
        let body = RecordedBody(Arc::clone(&recording));
        let recorder = Self {
            recording,
            stream: Some(Box::pin(stream)),
            head,
            max_bytes,
            is_cancelled: Arc::default(),
        };
        (Box::new(recorder), body)
    }

    /// Records the stream to its end.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the client gets all of the stream, and the recording is lost.
    pub(super) async fn record(&mut self) -> Recorded {
        // A statement of its own, so that the future is dropped before the recording ends.
        let read = unwind(pin!(self.read())).await;
        read.unwrap_or_else(|panic| {
            self.end(StreamEnd::Panicked(panic));
            Recorded::Broken
        })
    }

    async fn read(&mut self) -> Recorded {
        let mut trailers = None;
        while let Some(stream) = &mut self.stream {
            // A stream that is always ready would starve all other tasks of its thread.
            consume_budget().await;
            match poll_fn(|cx| stream.as_mut().poll_frame(cx)).await {
                None => {
                    let whole = self.end(StreamEnd::Whole(trailers.clone()));
                    return Recorded::Whole(whole, trailers);
                }
                Some(Err(error)) => {
                    self.end(StreamEnd::Broken(error));
                    break;
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        if self.push(data) > self.max_bytes {
                            return Recorded::TooLarge;
                        }
                    }
                    Err(frame) => {
                        if let Ok(more) = frame.into_trailers() {
                            trailers.get_or_insert_with(HeaderMap::new).extend(more);
                        }
                    }
                },
            }
        }
        Recorded::Broken
    }

    /// Adds data. Returns the length of all.
    fn push(&self, data: B::Data) -> usize {
        let mut recording = self.recording.lock();
        recording.data.put(data);
        let (length, client) = (recording.data.len(), recording.client.take());
        drop(recording);
        wake(client);
        length
    }

    /// Ends the recording. Returns all of it.
    fn end(&mut self, end: StreamEnd<B>) -> Bytes {
        let stream = self.stream.take();
        let mut recording = self.recording.lock();
        recording.whole = std::mem::take(&mut recording.data).freeze();
        recording.end = Some(end);
        let (whole, client) = (recording.whole.clone(), recording.client.take());
        drop(recording);
        wake(client);
        drop_contained(stream);
        whole
    }
}

impl<B: Body> Drop for StreamRecorder<B> {
    fn drop(&mut self) {
        if self.is_cancelled.load(Ordering::Acquire) && self.stream.is_some() {
            // An end would look like the end of the stream, and an error of the handler's type cannot be made here.
            self.end(StreamEnd::Panicked(Box::new(CANCELLED)));
        } else if let Some(stream) = self.stream.take() {
            self.end(StreamEnd::Rest(stream));
        }
    }
}

/// Drops a stream, whose destructor is the handler's.
///
/// A panic of it, which the panic hook has reported, changes neither the answer nor the client's part.
fn drop_contained<T>(stream: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(stream)));
}

fn wake(client: Option<Waker>) {
    if let Some(client) = client {
        client.wake();
    }
}

impl<B: Body> Drop for StreamRecording<B> {
    fn drop(&mut self) {
        drop_contained(self.end.take());
    }
}

impl<B: Body> StreamRecording<B> {
    /// The next part for the client: one frame; after the end, all.
    fn next(&mut self) -> Option<Bytes> {
        let next = if self.whole.is_empty() {
            let end = self.data.len().min(self.passed + FRAME);
            Bytes::copy_from_slice(&self.data[self.passed..end])
        } else {
            self.whole.slice(self.passed..)
        };
        self.passed += next.len();
        (!next.is_empty()).then_some(next)
    }
}

/// The next part of the client's body.
pub(super) enum Next<B: Body> {
    Frame(Option<Result<Frame<Bytes>, B::Error>>),
    /// The client reads the rest of the stream itself.
    Rest(Pin<Box<B>>),
}

impl<B: Body> RecordedBody<B> {
    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Next<B>> {
        let mut recording = self.0.lock();
        if let Some(data) = recording.next() {
            return Poll::Ready(Next::Frame(Some(Ok(Frame::data(data)))));
        }
        let Some(end) = recording.end.take() else {
            recording.client = Some(cx.waker().clone());
            return Poll::Pending;
        };
        recording.end = Some(StreamEnd::Whole(None));
        drop(recording);
        Poll::Ready(match end {
            StreamEnd::Whole(trailers) => {
                Next::Frame(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            StreamEnd::Broken(error) => Next::Frame(Some(Err(error))),
            StreamEnd::Panicked(panic) => resume_unwind(panic),
            StreamEnd::Rest(stream) => Next::Rest(stream),
        })
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let recording = self.0.lock();
        let is_passed = recording.passed == recording.whole.len();
        is_passed && matches!(recording.end, Some(StreamEnd::Whole(None)))
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let recording = self.0.lock();
        match recording.length {
            Some(length) => SizeHint::with_exact(length.saturating_sub(recording.passed as u64)),
            None => SizeHint::new(),
        }
    }
}
