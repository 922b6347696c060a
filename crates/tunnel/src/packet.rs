//! Making packets.

use bytes::Bytes;

pub(crate) use crate::wire::packet::Payload;
pub(crate) use crate::wire::{
    CloseDial, CloseRequest, CloseResponse, Data, DialRequest, DialResponse, Drain, Packet, PacketType,
};

/// The metadata key of an agent's name.
pub const AGENT_ID: &str = "agentid";
/// The metadata key of an agent's self-asserted addresses.
pub const AGENT_IDENTIFIERS: &str = "agentidentifiers";
/// The header by which a server names itself.
pub const SERVER_ID: &str = "serverid";
/// The header by which a server says how many servers there are.
pub const SERVER_COUNT: &str = "servercount";
/// The header by which Atoll's server tells Atoll's agent that it pings each second.
pub const ATOLL_PINGS: &str = "atoll-pings";

fn packet(kind: PacketType, payload: Payload) -> Packet {
    Packet { r#type: kind as i32, payload: Some(payload) }
}

pub(crate) fn dial_request(address: &str, random: i64) -> Packet {
    let request = DialRequest { protocol: "tcp".to_owned(), address: address.to_owned(), random };
    packet(PacketType::DialReq, Payload::DialRequest(request))
}

pub(crate) fn dial_response(random: i64, result: Result<i64, String>) -> Packet {
    let (connect_id, error) = match result {
        Ok(id) => (id, String::new()),
        Err(error) => (0, error),
    };
    packet(PacketType::DialRsp, Payload::DialResponse(DialResponse { error, connect_id, random }))
}

pub(crate) fn data(connect_id: i64, data: Bytes) -> Packet {
    packet(PacketType::Data, Payload::Data(Data { connect_id, error: String::new(), data }))
}

pub(crate) fn close_request(connect_id: i64) -> Packet {
    packet(PacketType::CloseReq, Payload::CloseRequest(CloseRequest { connect_id }))
}

pub(crate) fn close_response(connect_id: i64, error: &str) -> Packet {
    packet(PacketType::CloseRsp, Payload::CloseResponse(CloseResponse { error: error.to_owned(), connect_id }))
}

pub(crate) fn close_dial(random: i64) -> Packet {
    packet(PacketType::DialCls, Payload::CloseDial(CloseDial { random }))
}

pub(crate) fn drain() -> Packet {
    packet(PacketType::Drain, Payload::Drain(Drain {}))
}
