//! The bodies that pass through the layer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http::HeaderMap;
use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use super::recording::{Next, RecordedBody};

/// A body whose beginning, or all of it, is in memory.
///
/// The part in memory is one frame: shared, if `B` has one, and joined from several. The body of a request as the
/// handler receives it: buffered as a whole if the request has a key, else streamed. The body of a response as it
/// leaves the layer: buffered as a whole if it was stored, recorded if it is a stream to be stored, else streamed.
pub struct Buffered<B: Body> {
    read: Collected,
    rest: Rest<B>,
}

/// The part of a body after the data in memory.
enum Rest<B: Body> {
    Read(BodyEnd<B>),
    /// A stream that is recorded.
    Recorded(RecordedBody<B>),
}

/// Data and trailers of a body in memory, shared by clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    pub(super) data: Bytes,
    // Boxed, because futures hold it and few bodies have any.
    trailers: Option<Box<HeaderMap>>,
}

impl Collected {
    pub(crate) fn new(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self {
            data,
            trailers: trailers.map(Box::new),
        }
    }

    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_deref()
    }
}

/// The data of a body so far: one frame, or all joined.
#[derive(Default)]
struct ReadData {
    first: Bytes,
    joined: BytesMut,
}

impl ReadData {
    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
        } else if !data.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.joined.reserve(first.len() + data.len());
            self.joined.extend_from_slice(&first);
            self.joined.extend_from_slice(&data);
        }
    }

    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn end(self) -> Bytes {
        if self.joined.is_empty() {
            return self.first;
        }
        self.joined.freeze()
    }
}

/// The rest of a body after the data in memory.
pub(super) enum BodyEnd<B: Body> {
    /// Nothing: the body was read completely.
    Whole,
    /// The unread rest of a body that exceeds the limit.
    More(Pin<Box<B>>),
    /// The error that ended the body.
    Broken(B::Error),
}

/// Reads a body until it exceeds `max_bytes` or `show` returns `false`.
///
/// Of a body whose size hint exceeds the limit, nothing is read. If dropped, the data read so far are lost.
pub(super) async fn read<B: Body>(
    mut body: Pin<Box<B>>,
    max_bytes: usize,
    mut show: impl FnMut(&[u8]) -> bool,
) -> (Collected, BodyEnd<B>) {
    let mut read = ReadData::default();
    let mut trailers = None;
    let max = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    if body.size_hint().lower() > max {
        return (Collected::default(), BodyEnd::More(body));
    }
    let end = loop {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        match frame.map(|frame| frame.map(whole)) {
            None => break BodyEnd::Whole,
            Some(Err(error)) => break BodyEnd::Broken(error),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    let goes_on = show(&data);
                    read.push(data);
                    if !goes_on || read.len() > max_bytes {
                        break BodyEnd::More(body);
                    }
                }
                Err(frame) => {
                    if let Ok(more) = frame.into_trailers() {
                        trailers.get_or_insert_with(HeaderMap::new).extend(more);
                    }
                }
            },
        }
    };
    (Collected::new(read.end(), trailers), end)
}

/// The data of a frame as one piece; `Bytes` are not copied.
fn whole<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}

impl<B: Body> Buffered<B> {
    /// A body that is streamed as a whole.
    pub(crate) fn passing(body: B) -> Self {
        Self::new(Collected::default(), BodyEnd::More(Box::pin(body)))
    }

    pub(super) fn new(read: Collected, rest: BodyEnd<B>) -> Self {
        Self {
            read,
            rest: Rest::Read(rest),
        }
    }

    pub(super) fn recorded(stream: RecordedBody<B>) -> Self {
        Self {
            read: Collected::default(),
            rest: Rest::Recorded(stream),
        }
    }

    /// Takes the unread rest of a body; `None`: there is none.
    pub(super) fn unread(&mut self) -> Option<Pin<Box<B>>> {
        match std::mem::replace(&mut self.rest, Rest::Read(BodyEnd::Whole)) {
            Rest::Read(BodyEnd::More(rest)) => Some(rest),
            _ => None,
        }
    }

    /// The data of a body that is completely in memory.
    pub(super) fn bytes(&self) -> Bytes {
        self.read.data.clone()
    }

    /// The trailers of a body that is completely in memory.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.read.trailers()
    }

    /// Restricts the trailers, and removes them if none are left.
    pub(super) fn retain_trailers(&mut self, retain: impl FnOnce(&mut HeaderMap)) {
        if let Some(trailers) = &mut self.read.trailers {
            retain(trailers);
            if trailers.is_empty() {
                self.read.trailers = None;
            }
        }
    }

    pub(super) fn read(&self) -> &Collected {
        &self.read
    }

    /// Whether the body is completely in memory.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.rest, Rest::Read(BodyEnd::Whole))
    }

    /// A body that is completely in memory.
    pub(super) fn whole(read: Collected) -> Self {
        Self::new(read, BodyEnd::Whole)
    }
}

// Only the boxed body is pinned.
impl<B: Body> Unpin for Buffered<B> {}

impl<B: Body> Body for Buffered<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.read.data.is_empty() {
            let data = std::mem::take(&mut self.read.data);
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Rest::Recorded(recorded) = &self.rest {
            match ready!(recorded.poll_next(cx)) {
                Next::Frame(frame) => return Poll::Ready(frame),
                Next::Rest(rest) => self.rest = Rest::Read(BodyEnd::More(rest)),
            }
        }
        if let Rest::Read(BodyEnd::More(body)) = &mut self.rest {
            let frame = body.as_mut().poll_frame(cx);
            return frame.map(|frame| frame.map(|frame| frame.map(whole)));
        }
        if let Rest::Read(BodyEnd::Broken(error)) =
            std::mem::replace(&mut self.rest, Rest::Read(BodyEnd::Whole))
        {
            return Poll::Ready(Some(Err(error)));
        }
        let trailers = self.read.trailers.take();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(*trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let rest = match &self.rest {
            Rest::Read(BodyEnd::Whole) => self.read.trailers.is_none(),
            Rest::Read(BodyEnd::More(body)) => body.is_end_stream(),
            Rest::Read(BodyEnd::Broken(_)) => false,
            Rest::Recorded(stream) => stream.is_end_stream(),
        };
        self.read.data.is_empty() && rest
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.data.len() as u64;
        let rest = match &self.rest {
            Rest::Read(BodyEnd::Whole) => SizeHint::with_exact(0),
            Rest::Read(BodyEnd::More(body)) => body.size_hint(),
            Rest::Read(BodyEnd::Broken(_)) => SizeHint::new(),
            Rest::Recorded(stream) => stream.size_hint(),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(read.saturating_add(rest.lower()));
        // From an exact length a server writes a `Content-Length`, after which HTTP/1.1 has no trailers.
        let upper = rest.upper().and_then(|upper| upper.checked_add(read));
        if let Some(upper) = upper.filter(|_| self.read.trailers.is_none()) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B: Body> Default for Buffered<B> {
    /// An empty body.
    fn default() -> Self {
        Self::whole(Collected::default())
    }
}

debug_fields!([B: Body] Buffered<B> { bytes: |it| it.read.data.len(), whole: |it| it.is_whole() });
