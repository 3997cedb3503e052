use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

/// Ends a test that would hang. The clock of these tests moves only while nothing else can.
const LIMIT: Duration = Duration::from_secs(3600);

/// Both ends of a connection: the server writes frames as they are.
async fn connected(limit: u64) -> (Socket<DuplexStream>, DuplexStream) {
    let (client, server) = duplex(1 << 20);
    let limits = SocketLimits::default();
    let socket = Socket::over(client, limit, &limits, Redaction::default()).await;
    (socket, server)
}

/// A frame of a server.
fn frame(is_last: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![(u8::from(is_last) << 7) | opcode];
    match u8::try_from(payload.len()) {
        Ok(length @ 0..126) => frame.push(length),
        _ => {
            frame.push(127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

async fn next(socket: &mut Socket<DuplexStream>) -> Result<Bytes, SocketError> {
    let next = tokio::time::timeout(LIMIT, socket.next());
    let message = next.await.unwrap()?;
    Ok(message.bytes().clone())
}

#[tokio::test(start_paused = true)]
async fn messages_are_text_or_binary_whole_or_in_fragments() {
    let (mut socket, mut server) = connected(100).await;
    for bytes in [
        frame(true, TEXT, b"one"),
        frame(true, BINARY, b"two"),
        frame(false, TEXT, b"th"),
        frame(true, PING, b"?"),
        frame(false, CONTINUED, b""),
        frame(true, CONTINUED, b"ree"),
        frame(true, PONG, b""),
        frame(true, BINARY, &[b'x'; 100]),
    ] {
        server.write_all(&bytes).await.unwrap();
    }
    let expected: [&[u8]; 4] = [b"one", b"two", b"three", &[b'x'; 100]];
    for expected in expected {
        assert_eq!(next(&mut socket).await.unwrap(), expected);
    }
    let mut pong = [0; 7];
    server.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong[..2], [0x80 | PONG, 0x80 | 1], "the ping is answered");
}

#[tokio::test(start_paused = true)]
async fn message_longer_than_the_limit_ends_the_connection() {
    let gigabytes = {
        let mut frame = vec![0x80 | BINARY, 127];
        frame.extend((2_u64 << 30).to_be_bytes());
        frame
    };
    let fragments = [
        frame(false, TEXT, &[b'x'; 60]),
        frame(false, CONTINUED, &[b'x'; 41]),
    ];
    for bytes in [
        frame(true, TEXT, &[b'x'; 101]),
        fragments.concat(),
        gigabytes,
    ] {
        let (mut socket, mut server) = connected(100).await;
        server.write_all(&bytes).await.unwrap();
        let error = next(&mut socket).await.unwrap_err();
        assert_eq!(error, SocketError::TooLarge(SizeLimit::notification(100)));
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_answers_no_pings_is_given_up_after_two() {
    let (mut socket, mut server) = connected(100).await;
    let error = next(&mut socket).await.unwrap_err();
    assert_eq!(error, SocketError::Unanswered);
    drop(socket);
    let mut pings = Vec::new();
    server.read_to_end(&mut pings).await.unwrap();
    // Each is masked, and has no payload.
    assert_eq!(pings.len(), 2 * 6, "{pings:?}");
    assert_eq!((pings[0], pings[1]), (0x80 | PING, 0x80));
}

#[tokio::test(start_paused = true)]
async fn server_that_answers_pings_stays_connected() {
    let (mut socket, server) = connected(100).await;
    let (mut reader, mut writer) = tokio::io::split(server);
    let answering = tokio::spawn(async move {
        let mut ping = [0; 6];
        for _ in 0..100 {
            reader.read_exact(&mut ping).await.unwrap();
            writer.write_all(&frame(true, PONG, b"")).await.unwrap();
        }
        writer.write_all(&frame(true, TEXT, b"late")).await.unwrap();
        (reader, writer)
    });
    assert_eq!(next(&mut socket).await.unwrap(), "late");
    answering.await.unwrap();
}

/// A server that sends something again and again, a short time after each ping.
async fn repeating(first: Vec<u8>, repeated: Vec<u8>) -> SocketError {
    let (mut socket, mut server) = connected(1000).await;
    let sending = async move {
        server.write_all(&first).await.unwrap();
        loop {
            tokio::time::sleep(PING_INTERVAL / 3).await;
            if server.write_all(&repeated).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        error = next(&mut socket) => error.unwrap_err(),
        () = sending => unreachable!("it never ends"),
    }
}

#[tokio::test(start_paused = true)]
async fn message_that_never_ends_ends_the_connection() {
    let empty = frame(false, CONTINUED, b"");
    let with_pongs = [frame(true, PONG, b""), empty.clone()].concat();
    // A frame of 900 bytes, a byte at a time.
    let trickled = frame(true, TEXT, &[b'x'; 900])[..10].to_vec();
    for (first, repeated) in [
        (frame(false, TEXT, b"x"), empty),
        (frame(false, TEXT, b"x"), with_pongs),
        (trickled, vec![b'x']),
    ] {
        assert_eq!(repeating(first, repeated).await, SocketError::Endless);
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_only_sends_pings_begins_no_message() {
    let pings = tokio::time::timeout(
        LIMIT / 2,
        repeating(Vec::new(), frame(true, PING, b"12345")),
    );
    assert!(pings.await.is_err(), "it stays connected");
}

#[tokio::test(start_paused = true)]
async fn end_of_a_connection_has_a_reason() {
    let away = [&1001_u16.to_be_bytes()[..], b"going\naway"].concat();
    let masked = [0x80 | TEXT, 0x80 | 1, 1, 2, 3, 4, b'x'].to_vec();
    for (bytes, code, text) in [
        (
            frame(true, CLOSE, &away),
            "connection-closed",
            "(1001: going away)",
        ),
        (frame(true, CLOSE, b""), "connection-closed", "connection"),
        (Vec::new(), "connection-closed", "connection"),
        (frame(true, 3, b""), "websocket-protocol", "violates"),
        (frame(true, TEXT, &[0xff]), "websocket-protocol", "UTF-8"),
        (
            frame(true, CONTINUED, b"x"),
            "websocket-protocol",
            "ontinue",
        ),
        (masked, "websocket-protocol", "masked"),
        (vec![0x80 | 0x40 | TEXT, 0], "websocket-protocol", "eserved"),
        (frame(true, PING, &[0; 126]), "websocket-protocol", "ontrol"),
    ] {
        let (mut socket, mut server) = connected(1000).await;
        server.write_all(&bytes).await.unwrap();
        drop(server);
        let error = next(&mut socket).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_floods_with_pings_and_reads_nothing_takes_little_memory() {
    let (client, mut server) = duplex(1 << 10);
    let limits = SocketLimits::default();
    let mut socket = Socket::over(client, 100, &limits, Redaction::default()).await;
    let flooding = async {
        for _ in 0..10_000 {
            server
                .write_all(&frame(true, PING, &[b'x'; 125]))
                .await
                .unwrap();
        }
        server.write_all(&frame(true, TEXT, b"last")).await.unwrap();
    };
    let (received, ()) = tokio::join!(next(&mut socket), flooding);
    assert_eq!(received.unwrap(), "last");
    // Whatever was to be sent is sent now.
    let mut answers = Vec::new();
    let ((), read) = tokio::join!(socket.close(), server.read_to_end(&mut answers));
    read.unwrap();
    let longest = 2 + 4 + LONGEST_CONTROL;
    assert!(answers.len() >= longest, "the pings are answered");
    let most = (1 << 10) + WRITE_BUFFER + 2 * longest;
    assert!(answers.len() <= most, "{}", answers.len());
}

#[tokio::test(start_paused = true)]
async fn few_connections_of_a_source_are_in_the_middle_of_a_long_message() {
    let limits = SocketLimits::default();
    let long = 4 * SHORT;
    let payload = vec![b'x'; usize::try_from(long).unwrap()];
    let message = frame(true, BINARY, &payload);
    let half = message.len() / 2;
    let mut servers = Vec::new();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..=MOST_LONG {
        let (client, server) = duplex(1 << 12);
        let mut socket = Socket::over(client, long, &limits, Redaction::default()).await;
        clients.spawn(async move { (next(&mut socket).await.unwrap().len() as u64, socket) });
        servers.push(server);
    }
    let rest: Vec<DuplexStream> = servers.split_off(1);
    let mut first = servers.remove(0);
    // They are in the middle of theirs.
    let mut begun = Vec::new();
    for mut server in rest {
        server.write_all(&message[..half]).await.unwrap();
        begun.push(server);
    }
    // A further one is read no more than a short message is.
    let writing = first.write_all(&message[..half]);
    let waiting = tokio::time::timeout(PING_INTERVAL / 2, writing).await;
    assert!(waiting.is_err(), "it is read at once");
    begun[0].write_all(&message[half..]).await.unwrap();
    assert_eq!(clients.join_next().await.unwrap().unwrap().0, long);
    drop((begun, first, limits));
}

#[tokio::test(start_paused = true)]
async fn long_message_counts_as_one_until_it_is_dropped() {
    let (client, mut server) = duplex(1 << 20);
    let limits = SocketLimits::default();
    let most = usize::try_from(2 * SHORT).unwrap();
    let mut socket = Socket::over(client, 2 * SHORT, &limits, Redaction::default()).await;
    for (length, permits) in [(most, MOST_LONG - 1), (most / 4, MOST_LONG)] {
        let message = frame(true, BINARY, &vec![b'x'; length]);
        server.write_all(&message).await.unwrap();
        let message = tokio::time::timeout(LIMIT, socket.next()).await;
        let message = message.unwrap().unwrap();
        assert_eq!(message.bytes().len(), length);
        assert_eq!(limits.long.available_permits(), permits, "{length}");
        drop(message);
        assert_eq!(limits.long.available_permits(), MOST_LONG);
    }
}

#[tokio::test(start_paused = true)]
async fn server_is_not_blamed_while_its_message_waits_for_others() {
    let (client, server) = duplex(1 << 12);
    let limits = SocketLimits::default();
    let most = usize::try_from(2 * SHORT).unwrap();
    let mut socket = Socket::over(client, 2 * SHORT, &limits, Redaction::default()).await;
    let others = Arc::clone(&limits.long).acquire_many_owned(u32::try_from(MOST_LONG).unwrap());
    let others = others.await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(server);
    let sending = async {
        let message = frame(true, BINARY, &vec![b'x'; most]);
        writer.write_all(&message).await.unwrap();
    };
    let waiting = async {
        tokio::time::sleep(PING_INTERVAL * 2 * LONGEST_MESSAGE).await;
        drop(others);
    };
    let receiving = async move {
        let received = next(&mut socket).await.unwrap();
        drop(socket);
        received
    };
    let (received, (), ()) = tokio::join!(receiving, sending, waiting);
    assert_eq!(received.len(), most);
    let mut pings = Vec::new();
    reader.read_to_end(&mut pings).await.unwrap();
    assert!(pings.len() > 6 * 10, "it is still sent pings: {pings:?}");
}
