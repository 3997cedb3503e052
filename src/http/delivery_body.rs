//! Reads the body of a delivery into memory, up to a length and in limited time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Body as _;

use super::delivery_budget::{DeliveryBudget, DeliveryLength, Reservation};
use crate::clock;
use crate::store::ChannelId;

/// How long a hub may take to send the body of a delivery.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// A delivery of so many bytes at most reserves no room.
const SHORT: usize = 32 << 10;
/// How much is allocated at once, whatever the greatest length is: the buffer of more grows as it is received.
const MOST_ALLOCATED: u64 = 64 << 20;
/// How much of a delivery that is too large is read, as a multiple of the longest allowed one.
const MAX_DISCARDED: u64 = 4;

/// The body of a delivery that was read completely, with its room in the budget.
pub(super) struct DeliveryBody {
    pub(super) bytes: Bytes,
    _reservation: Option<Reservation>,
}

/// Reads a delivery of at most `longest` bytes completely; or returns a code and the status of the answer. Some of what is too much is
/// read and discarded: a hub that is still sending would not see the answer.
pub(super) async fn read_body(
    body: Body,
    longest: u64,
    budget: &DeliveryBudget,
    channel: ChannelId,
) -> Result<DeliveryBody, (&'static str, StatusCode)> {
    let too_many = ("too-many-deliveries", StatusCode::SERVICE_UNAVAILABLE);
    let begin = |length| budget.begin(channel, length).ok_or(too_many);
    let stated = body.size_hint().exact();
    let mut reading = BodyReader {
        body,
        longest,
        received: 0,
        bytes: Vec::new(),
    };
    let mut time_left = BODY_TIMEOUT;
    if stated.unwrap_or(u64::MAX).min(longest) <= SHORT as u64 {
        let _short = begin(DeliveryLength::Short)?;
        reading.allocate(stated);
        reading.read_in(time_left, u64::MAX).await?;
        return Ok(reading.finish(None));
    }
    if stated.is_none() {
        let _short = begin(DeliveryLength::Short)?;
        let begun = clock::now().mono;
        reading.allocate(Some(SHORT as u64));
        if reading.read_in(time_left, SHORT as u64).await? {
            return Ok(reading.finish(None));
        }
        time_left = time_left.saturating_sub(clock::now().mono.saturating_duration_since(begun));
    }
    let _long = begin(DeliveryLength::Long)?;
    let reserving = budget.reserve(channel, stated.unwrap_or(longest));
    let reservation = reserving.await.ok_or(too_many)?;
    reading.allocate(stated);
    reading.read_in(time_left, u64::MAX).await?;
    Ok(reading.finish(Some(reservation)))
}

struct BodyReader {
    body: Body,
    longest: u64,
    received: u64,
    bytes: Vec<u8>,
}

impl BodyReader {
    /// Allocates what so many bytes need, or the greatest length: a buffer that grows leaves as much behind as it has. What is not written
    /// to takes no memory.
    fn allocate(&mut self, length: Option<u64>) {
        let length = length.unwrap_or(u64::MAX).min(self.longest);
        let length = length.min(MOST_ALLOCATED) as usize;
        let rest = length.saturating_sub(self.bytes.len());
        self.bytes.reserve_exact(rest);
    }

    /// Reads until more than `most` bytes were received; returns whether the end was reached.
    async fn read_in(
        &mut self,
        time: Duration,
        most: u64,
    ) -> Result<bool, (&'static str, StatusCode)> {
        let read = tokio::time::timeout(time, self.read(most)).await;
        if self.received > self.longest {
            return Err(("delivery-too-large", StatusCode::PAYLOAD_TOO_LARGE));
        }
        read.unwrap_or(Err(("delivery-too-slow", StatusCode::REQUEST_TIMEOUT)))
    }

    async fn read(&mut self, most: u64) -> Result<bool, (&'static str, StatusCode)> {
        while self.received <= most {
            let Some(frame) = self.body.frame().await else {
                return Ok(true);
            };
            let frame = frame.map_err(|_| ("delivery-cut-short", StatusCode::BAD_REQUEST))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.received = self.received.saturating_add(data.len() as u64);
            if self.received <= self.longest {
                self.bytes.extend_from_slice(&data);
                continue;
            }
            self.bytes = Vec::new();
            if self.received > self.longest.saturating_mul(MAX_DISCARDED) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn finish(mut self, reservation: Option<Reservation>) -> DeliveryBody {
        self.bytes.shrink_to_fit();
        DeliveryBody {
            bytes: self.bytes.into(),
            _reservation: reservation,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt, stream};

    use super::*;

    const LONGEST: u64 = 100 << 10;
    const CHANNEL: ChannelId = ChannelId(1);

    /// A body of unknown length, in pieces.
    fn unstated(length: usize) -> Body {
        let pieces = vec![Bytes::from(vec![b'x'; 1000]); length / 1000];
        let rest = Bytes::from(vec![b'x'; length % 1000]);
        let pieces = pieces.into_iter().chain([rest]).map(Ok::<_, Infallible>);
        Body::from_stream(stream::iter(pieces))
    }

    fn stated(length: usize) -> Body {
        Body::from(vec![b'x'; length])
    }

    #[tokio::test(start_paused = true)]
    async fn only_long_deliveries_wait_for_room() {
        let too_large = Err("delivery-too-large");
        let too_many = Err("too-many-deliveries");
        for (length, with_room, without) in [
            (0, Ok(0), Ok(0)),
            (1, Ok(1), Ok(1)),
            (SHORT, Ok(SHORT), Ok(SHORT)),
            (SHORT + 1000, Ok(SHORT + 1000), too_many),
            (100 << 10, Ok(100 << 10), too_many),
            ((100 << 10) + 1, too_large, too_many),
            (1 << 20, too_large, too_many),
        ] {
            for (kind, body) in [
                ("stated", stated as fn(usize) -> Body),
                ("unstated", unstated as fn(usize) -> Body),
            ] {
                let budget = DeliveryBudget::new(LONGEST);
                let read = async || {
                    let read = read_body(body(length), LONGEST, &budget, CHANNEL).await;
                    let read = read.map(|body| body.bytes);
                    assert!(read.iter().flatten().all(|&byte| byte == b'x'));
                    read.map(|bytes| bytes.len()).map_err(|(code, _)| code)
                };
                assert_eq!(read().await, with_room, "{kind} {length}");
                let mut reserved = Vec::new();
                for _ in 0..4 {
                    reserved.push(budget.reserve(CHANNEL, LONGEST).await.unwrap());
                }
                assert_eq!(read().await, without, "{kind} {length}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delivery_that_stalls_is_too_slow() {
        let budget = DeliveryBudget::new(LONGEST);
        for begin in [1, SHORT, SHORT + 1000] {
            let begin = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b'x'; begin]))]);
            let body = Body::from_stream(begin.chain(stream::pending()));
            let read = read_body(body, LONGEST, &budget, CHANNEL).await;
            let error = read.map(|_| ()).unwrap_err();
            assert_eq!(error, ("delivery-too-slow", StatusCode::REQUEST_TIMEOUT));
        }
    }
}
