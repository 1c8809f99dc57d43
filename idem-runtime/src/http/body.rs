//! The bodies that pass through the layer.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::http::HeaderMap;
use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// A body whose beginning, or all of it, is in memory.
///
/// Its frames are those of `B`, shared and not copied. The body of a request as the handler receives it: buffered as a whole
/// if the request has a key, else streamed. The body of a response as it leaves the layer: buffered as a whole if it was
/// stored, else streamed.
pub struct Buffered<B: Body> {
    frames: Frames,
    rest: BodyEnd<B>,
}

/// The number of frames from which small ones are joined, because a body in frames of one byte would take more memory
/// for the frames than for its bytes.
const MANY: usize = 64;
const SMALL: usize = 1 << 10;

/// The frames of a body, in memory. Cloning shares them.
///
/// Most bodies are one frame without trailers, which allocates nothing here; a small type, because futures hold it.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    /// Empty: there are no data.
    first: Bytes,
    others: VecDeque<Bytes>,
    trailers: Option<Box<HeaderMap>>,
    bytes: usize,
}

impl Frames {
    pub(super) fn new(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self {
            bytes: data.len(),
            first: data,
            others: VecDeque::new(),
            trailers: trailers.map(Box::new),
        }
    }

    /// Appends a frame that is not empty.
    fn append(&mut self, data: Bytes) {
        self.bytes += data.len();
        if self.first.is_empty() {
            self.first = data;
        } else {
            self.others.push_back(data);
        }
    }

    /// Removes the first frame.
    fn pop(&mut self) -> Option<Bytes> {
        if self.first.is_empty() {
            return None;
        }
        let next = self.others.pop_front().unwrap_or_default();
        let data = std::mem::replace(&mut self.first, next);
        self.bytes -= data.len();
        Some(data)
    }

    /// The number of bytes of data.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn data(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The data as one piece; a single frame is shared, several are copied.
    pub(super) fn joined(&self) -> Bytes {
        if self.others.is_empty() {
            return self.first.clone();
        }
        let mut joined = BytesMut::with_capacity(self.bytes);
        self.data().for_each(|data| joined.extend_from_slice(data));
        joined.freeze()
    }

    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_deref()
    }
}

/// The frames of a body that is being read: many small ones are joined.
#[derive(Default)]
struct ReadFrames {
    frames: Frames,
    /// Small frames after those.
    small: BytesMut,
}

impl ReadFrames {
    fn bytes(&self) -> usize {
        self.frames.bytes + self.small.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.frames.others.len() >= MANY && data.len() < SMALL {
            self.small.extend_from_slice(&data);
            if self.small.len() >= SMALL * 16 {
                self.join();
            }
        } else if !data.is_empty() {
            self.join();
            self.frames.append(data);
        }
    }

    /// Appends the joined small frames in order.
    fn join(&mut self) {
        if !self.small.is_empty() {
            let joined = self.small.split().freeze();
            self.frames.append(joined);
        }
    }

    fn end(mut self) -> Frames {
        self.join();
        self.frames
    }
}

/// The rest of a body after the frames in memory.
pub(super) enum BodyEnd<B: Body> {
    /// Nothing: the body was read completely.
    Whole,
    /// The unread rest of a body that exceeds the limit.
    More(Pin<Box<B>>),
    /// The error that ended the body.
    Broken(B::Error),
}

/// Reads a body until it exceeds `max_bytes`, and passes its data to `show`.
///
/// Of a body whose size hint exceeds the limit, nothing is read.
///
/// # Cancel safety
///
/// If dropped, the frames read so far are lost.
pub(super) async fn read<B: Body>(
    body: B,
    max_bytes: usize,
    mut show: impl FnMut(&[u8]),
) -> (Frames, BodyEnd<B>) {
    let mut body = Box::pin(body);
    let mut read = ReadFrames::default();
    let max = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    if body.size_hint().lower() > max {
        return (Frames::default(), BodyEnd::More(body));
    }
    let end = loop {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        match frame.map(|frame| frame.map(whole)) {
            None => break BodyEnd::Whole,
            Some(Err(error)) => break BodyEnd::Broken(error),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    show(&data);
                    read.push(data);
                    if read.bytes() > max_bytes {
                        break BodyEnd::More(body);
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        let known = read.frames.trailers.get_or_insert_default();
                        known.extend(trailers);
                    }
                }
            },
        }
    };
    (read.end(), end)
}

/// The data of a frame as one piece; `Bytes` are not copied.
fn whole<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}

impl<B: Body> Buffered<B> {
    /// A body that is streamed as a whole.
    pub(super) fn passing(body: B) -> Self {
        Self::new(Frames::default(), BodyEnd::More(Box::pin(body)))
    }

    pub(super) fn new(frames: Frames, rest: BodyEnd<B>) -> Self {
        Self { frames, rest }
    }

    /// The data of a body that is completely in memory.
    pub(super) fn bytes(&self) -> Bytes {
        self.frames.joined()
    }

    /// The trailers of a body that is completely in memory.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.frames.trailers()
    }

    /// Restricts the trailers, and removes them if none are left.
    pub(super) fn retain_trailers(&mut self, retain: impl FnOnce(&mut HeaderMap)) {
        if let Some(trailers) = &mut self.frames.trailers {
            retain(trailers);
            if trailers.is_empty() {
                self.frames.trailers = None;
            }
        }
    }

    pub(super) fn frames(&self) -> &Frames {
        &self.frames
    }

    /// A body that is completely in memory.
    pub(super) fn whole(frames: Frames) -> Self {
        Self::new(frames, BodyEnd::Whole)
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
        if let Some(data) = self.frames.pop() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let BodyEnd::More(body) = &mut self.rest {
            let frame = body.as_mut().poll_frame(cx);
            return frame.map(|frame| frame.map(|frame| frame.map(whole)));
        }
        if let BodyEnd::Broken(error) = std::mem::replace(&mut self.rest, BodyEnd::Whole) {
            return Poll::Ready(Some(Err(error)));
        }
        let trailers = self.frames.trailers.take();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(*trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let rest = match &self.rest {
            BodyEnd::Whole => self.frames.trailers.is_none(),
            BodyEnd::More(body) => body.is_end_stream(),
            BodyEnd::Broken(_) => false,
        };
        self.frames.first.is_empty() && rest
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.frames.bytes as u64;
        let rest = match &self.rest {
            BodyEnd::Whole => SizeHint::with_exact(0),
            BodyEnd::More(body) => body.size_hint(),
            BodyEnd::Broken(_) => SizeHint::new(),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(read.saturating_add(rest.lower()));
        // From an exact length a server writes a `Content-Length`, after which HTTP/1.1 has no trailers.
        let upper = rest.upper().and_then(|upper| upper.checked_add(read));
        if let Some(upper) = upper.filter(|_| self.frames.trailers.is_none()) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B: Body> Default for Buffered<B> {
    /// An empty body.
    fn default() -> Self {
        Self::whole(Frames::default())
    }
}

impl<B: Body> fmt::Debug for Buffered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = match self.rest {
            BodyEnd::Whole => "ended",
            BodyEnd::More(_) => "coming",
            BodyEnd::Broken(_) => "broken",
        };
        f.debug_struct("Buffered")
            .field("bytes", &self.frames.bytes)
            .field("rest", &rest)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::task::Waker;

    use ::http::HeaderValue;

    use super::*;

    /// A body that has these frames at once.
    struct GivenFrames(VecDeque<Frame<Bytes>>);

    impl Body for GivenFrames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn at_once<F: Future>(future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("a body in memory is never pending"),
        }
    }

    fn buffered(frames: impl IntoIterator<Item = Frame<Bytes>>) -> Buffered<GivenFrames> {
        let body = GivenFrames(frames.into_iter().collect());
        let (frames, end) = at_once(read(body, usize::MAX, |_| ()));
        Buffered::new(frames, end)
    }

    fn data(bytes: &[u8]) -> Frame<Bytes> {
        Frame::data(Bytes::copy_from_slice(bytes))
    }

    fn trailers() -> Frame<Bytes> {
        let mut trailers = HeaderMap::new();
        trailers.insert("etag", HeaderValue::from_static("7"));
        Frame::trailers(trailers)
    }

    fn next(body: &mut Buffered<GivenFrames>) -> Option<Frame<Bytes>> {
        let frame = at_once(std::future::poll_fn(|cx| {
            Pin::new(&mut *body).poll_frame(cx)
        }));
        frame.map(|Ok(frame)| frame)
    }

    #[test]
    fn a_body_yields_the_frames_that_were_read_and_then_its_trailers() {
        let mut body = buffered([data(b"one"), data(b""), data(b"two"), trailers()]);
        assert_eq!(body.bytes(), "onetwo");
        for (left, expected) in [(6, "one"), (3, "two")] {
            assert_eq!(body.size_hint().lower(), left);
            assert!(!body.is_end_stream());
            let frame = next(&mut body).unwrap();
            assert_eq!(frame.into_data().unwrap(), expected);
        }
        assert_eq!(body.size_hint().lower(), 0);
        assert!(!body.is_end_stream(), "the trailers are left");
        assert_eq!(next(&mut body).unwrap().into_trailers().unwrap().len(), 1);
        assert!(body.is_end_stream());
        assert!(next(&mut body).is_none());
    }

    #[test]
    fn a_body_in_bytes_has_few_frames() {
        let bytes: Vec<u8> = (0..40_000_u32).flat_map(u32::to_be_bytes).collect();
        let frames = buffered(bytes.chunks(1).map(data)).frames;
        assert_eq!(frames.joined(), bytes);
        assert_eq!(frames.bytes(), bytes.len());
        assert!(frames.data().count() < MANY * 2);
    }

    #[test]
    fn trailers_of_which_none_are_left_do_not_hide_the_length() {
        let mut body = buffered([data(b"one"), trailers()]);
        body.retain_trailers(|_| ());
        assert_eq!(body.size_hint().exact(), None);
        body.retain_trailers(HeaderMap::clear);
        assert!(body.trailers().is_none());
        assert_eq!(body.size_hint().exact(), Some(3));
    }
}
