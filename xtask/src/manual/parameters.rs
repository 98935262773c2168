//! The meaning of parameters: headers give one name to one thing.

use super::Header;

/// Meanings by the name of the parameter, by its type and name where a name has several, or by its
/// function, type and name.
pub type Meanings = &'static [(&'static str, &'static str)];

/// Parameters of `weft.h`.
pub const WEFT: Meanings = &[
    ("code", "a code that a function returned"),
    ("weft_job **job", "where the handle of the job is stored"),
    ("weft_job *job", "the job"),
    ("timeout_us", "most time to wait, in microseconds; negative: without end"),
    ("rank", "number of a rank, from 0; for receives and probes also WEFT_ANY"),
    ("const char *name", "a name, as WORD, WORD:INSTANCE or WORD:FIRST-LAST"),
    (
        "weft_choose const char *name",
        "the part that is chosen: \"reliability\", \"mtu\", \"transfer\" or \"fetch_add\"",
    ),
    ("weft_stat const char *name", "the counter, such as \"rcpy_hits\""),
    ("const char *value", "the choice, such as \"selective\""),
    ("uint16_t number", "number of a handler or mailbox, which senders name"),
    ("weft_upcall upcall", "the function that is called with each packet"),
    ("void *context", "a pointer of the program, which comes back with what it is for"),
    ("weft_packet *packet", "the packet of a running upcall, or one that is kept"),
    ("weft_packet **kept", "where the handle of the kept packet is stored"),
    ("weft_packet *kept", "a packet that weft_packet_keep has stored"),
    ("uint16_t handler", "number of the handler or mailbox at the other rank"),
    ("uint32_t argument", "a number that goes with the packet"),
    ("const void *data", "the bytes to send"),
    ("size_t len", "bytes at data, or of the memory"),
    ("weft_packet_data size_t *len", "where the number of bytes is stored"),
    ("const void **data", "where the address of memory that is free again is stored"),
    ("void *data", "memory for the bytes"),
    ("int *source", "where the sender's rank is stored; null: nowhere"),
    ("uint32_t *argument", "where the sender's number is stored; null: nowhere"),
    ("size_t *got", "where the number of bytes, or one for each rank, is stored; null: nowhere"),
    ("weft_buffer **buffer", "where the handle of the memory is stored"),
    ("void **data", "where the address of its bytes is stored"),
    ("weft_buffer *buffer", "memory of weft_buffer_alloc"),
    ("uint16_t id", "a number that all members pass, of no other group or communicator"),
    ("weft_member_send_to id", "the member, from an event"),
    ("const int *ranks", "the ranks of the members, in the same order at each"),
    ("int *ranks", "memory for the ranks"),
    ("size_t count", "number of entries, or of values"),
    ("const size_t *counts", "the number of values of each rank's block, the same at all ranks"),
    ("weft_group **group", "where the handle of the group is stored"),
    ("weft_group *group", "the group"),
    ("int tree", "WEFT_TREE_FLAT, ..._CHAIN, ..._BINARY, ..._BINOMIAL, or ..._DEFAULT"),
    ("uint64_t value", "the first value"),
    ("uint64_t *key", "where the key is stored, which other ranks need"),
    ("uint64_t key", "the key that weft_counter or weft_export has stored"),
    ("uint64_t *value", "where the value is stored"),
    ("uint64_t n", "the number to add"),
    ("uint64_t *old", "where the value before the addition is stored"),
    ("void *memory", "the memory of the program"),
    ("void **memory", "where the address of the new memory is stored"),
    ("uint64_t offset", "first byte in the exported memory"),
    ("uint32_t tag", "the tag, 32 bits"),
    ("uint32_t ignore", "bits of the tag that are not compared; 0 compares all"),
    ("weft_status *status", "where sender, tag, length and code are stored; null: nowhere"),
    ("weft_request **request", "where the request is, or is stored; its end sets it to null"),
    ("weft_message **message", "where the handle of the message is stored"),
    ("weft_message *message", "a message that weft_msg_claim has stored"),
    ("weft_request **requests", "the requests, an array; null entries are ignored"),
    ("size_t *at", "where the index of the request that ended is stored"),
    ("weft_status *statuses", "memory for a status of each request; null: none are stored"),
    ("weft_request *request", "the request"),
    ("weft_set **set", "where the handle of the set is stored"),
    ("weft_set *set", "the set"),
    ("void **context", "where the context of the request that ended is stored"),
    ("weft_comm **comm", "where the handle of the communicator is stored"),
    ("weft_comm *comm", "the communicator"),
    ("int root", "the rank of the communicator that has or gets the bytes"),
    ("void *result", "memory for the result"),
    ("int type", "the type of the values: WEFT_INT8 to WEFT_DOUBLE"),
    (
        "int op",
        "the operation: WEFT_SUM, WEFT_PRODUCT, WEFT_MIN, WEFT_MAX, WEFT_AND, WEFT_OR, WEFT_XOR",
    ),
    ("void *all", "memory for `each` bytes of every rank"),
    ("size_t each", "bytes between the parts of two ranks, and most bytes of a part"),
    ("size_t *lens", "lengths of the parts, one for each rank; null: see above"),
    ("const void *all", "the bytes of every rank, `each` bytes apart"),
    ("weft_names **names", "where the connection is stored"),
    ("weft_names *names", "the connection to the agent"),
    ("const char *address", "a socket address, ADDRESS:PORT; null: none"),
    ("int flags", "WEFT_NAMES_UNIQUE, WEFT_NAMES_ON_HOST, WEFT_NAMES_MESSAGES, added; or 0"),
    ("uint64_t *claim", "where the number of the claim is stored"),
    ("uint64_t claim", "the number of the claim"),
    ("int pick", "WEFT_NAMES_NEAREST or WEFT_NAMES_TURN"),
    ("weft_owner *owner", "where the owner is stored"),
    ("weft_owner *owners", "memory for owners"),
    ("size_t room", "most owners to store"),
    ("int all", "0: to one owner; 1: to all of them"),
    ("uint64_t *number", "where the number of the message is stored; null: nowhere"),
    ("weft_names_event *event", "where the event is stored"),
    ("weft_names_watch *watch", "the subscription"),
    ("int first_last", "1: only the first owner that comes and the last that goes; 0: each change"),
    ("weft_names_watch **watch", "where the subscription is stored"),
    (
        "int64_t slow_us",
        "microseconds without taking messages after which a member is named; negative: 1 s",
    ),
    (
        "int64_t put_out_us",
        "time after which such a member is put out, in microseconds; negative: never",
    ),
    ("weft_member **member", "where the membership is stored"),
    ("weft_member *member", "the membership"),
    ("weft_member_event *event", "where the event is stored"),
    ("int to", "WEFT_TO_ONE, WEFT_TO_EACH or WEFT_TO_ALL"),
    ("uint32_t first", "first instance of the members"),
    ("uint32_t last", "last instance of the members"),
];

/// Parameters of `vipl.h`.
pub const VIPL: Meanings = &[
    ("DeviceName", "name of the network interface; see via.md of the guide"),
    ("VIP_NIC_HANDLE *NicHandle", "where the handle of the interface is stored"),
    ("NicHandle", "the network interface"),
    ("NicAttribs", "where its attributes are stored"),
    ("Context", "a pointer of the program for the handler"),
    ("ErrorHandler", "the function that is called with errors; NULL: the default one"),
    ("InfoType", "the information that is asked for"),
    ("SysManInfo", "memory for it"),
    ("const VIP_VI_ATTRIBUTES *ViAttribs", "the attributes of the virtual interface"),
    ("VIP_VI_ATTRIBUTES *ViAttribs", "where its attributes are stored"),
    ("SendCQHandle", "the completion queue of its sends; NULL: none"),
    ("RecvCQHandle", "the completion queue of its receives; NULL: none"),
    ("VIP_VI_HANDLE *ViHandle", "where the handle of the virtual interface is stored"),
    ("ViHandle", "the virtual interface"),
    ("State", "where its state is stored"),
    ("ViSendQEmpty", "where VIP_TRUE is stored if no send is posted"),
    ("ViRecvQEmpty", "where VIP_TRUE is stored if no receive is posted"),
    ("VIP_PROTECTION_HANDLE *ProtectionTag", "where the tag is stored"),
    ("ProtectionTag", "the tag"),
    ("VirtualAddress", "first byte of the memory"),
    ("Length", "bytes of the memory"),
    ("const VIP_MEM_ATTRIBUTES *MemAttribs", "tag and rights of the memory"),
    ("VIP_MEM_ATTRIBUTES *MemAttribs", "where they are stored"),
    ("VIP_MEM_HANDLE *MemoryHandle", "where the handle of the memory is stored"),
    ("MemoryHandle", "the handle of the memory; of posts, that of the descriptor"),
    ("Address", "first byte of the registered memory"),
    ("VIP_NET_ADDRESS *Address", "where the address is stored"),
    ("const VIP_NET_ADDRESS *Address", "the address"),
    ("MemHandle", "the handle of the memory"),
    ("VIP_DESCRIPTOR *DescriptorPtr", "the descriptor, aligned, in registered memory"),
    ("VIP_DESCRIPTOR **DescriptorPtr", "where the descriptor that is done is stored"),
    ("TimeOut", "most time to wait, in milliseconds; VIP_INFINITE: without end"),
    ("Handler", "the function that is called once"),
    ("EntryCount", "least number of entries"),
    ("VIP_CQ_HANDLE *CQHandle", "where the handle of the completion queue is stored"),
    ("CQHandle", "the completion queue"),
    ("RecvQueue", "where VIP_TRUE is stored for a receive, VIP_FALSE for a send"),
    ("LocalAddr", "the address of this side: host, and discriminator of the program"),
    ("VIP_NET_ADDRESS *RemoteAddr", "where the address of the other side is stored"),
    ("const VIP_NET_ADDRESS *RemoteAddr", "the address of the other side"),
    ("RemoteViAttribs", "where the attributes of the other virtual interface are stored"),
    ("VIP_CONN_HANDLE *ConnHandle", "where the request of the other side is stored"),
    ("ConnHandle", "the request of the other side"),
    ("NSInitInfo", "not used: NULL"),
    ("const VIP_CHAR *Name", "the name of the host"),
    ("VIP_CHAR *Name", "memory for the name"),
    ("NameIndex", "which of the addresses of that name, from 0"),
    ("NameLen", "in: bytes of that memory; out: length of the name"),
];

/// Parameters of `myriexpress.h`.
pub const MX: Meanings = &[
    ("int api", "version of the interface: MX_API"),
    (
        "mx_error_handler_t handler",
        "the function that is called with errors; MX_ERRORS_ARE_FATAL, MX_ERRORS_RETURN",
    ),
    (
        "mx_unexp_handler_t handler",
        "the function that is called with messages that no receive matches",
    ),
    ("callback", "the function that is called with such messages"),
    ("code", "a code that a function returned or a status has"),
    ("uint32_t board", "number of the board; MX_ANY_NIC: any"),
    ("uint32_t *board", "where the number of the board is stored"),
    (
        "uint32_t endpoint_id",
        "number of the endpoint on its board; on opening also MX_ANY_ENDPOINT",
    ),
    ("uint32_t *endpoint_id", "where the number of the endpoint is stored"),
    ("uint32_t *session_id", "where the number of the session is stored"),
    (
        "uint32_t key",
        "the key that both sides give; mx_get_info: the information that is asked for",
    ),
    ("mx_get_info_key_t key", "the information that is asked for"),
    ("params", "parameters of the endpoint; NULL: none"),
    ("params_count", "number of parameters"),
    ("mx_endpoint_t *endpoint", "where the endpoint is stored"),
    ("endpoint", "the endpoint"),
    (
        "void *context",
        "a pointer of the program, which the status has, or which goes with the address",
    ),
    ("mx_endpoint_addr_t *addr", "where the address is stored"),
    ("addr", "the address of an endpoint"),
    ("uint64_t *nic_id", "where the number of the network interface is stored"),
    ("nic_id", "number of the network interface"),
    ("void **context", "where the context is stored"),
    ("timeout_ms", "most time to wait, in milliseconds; MX_INFINITE: without end"),
    ("match_info", "the match bits"),
    ("match_mask", "match bits that are compared"),
    ("mx_request_t *request", "where the request is, or is stored"),
    ("request", "the request"),
    ("segments", "the parts of the message in memory"),
    ("segments_count", "number of parts"),
    ("dest", "the address of the receiver"),
    ("status", "where the status is stored"),
    ("result", "where the result is stored: 1 if there is one, 0 if not; or a number"),
    ("milli_seconds", "the time, in milliseconds"),
    ("in_val", "what the question needs; NULL: nothing"),
    ("in_len", "bytes of it"),
    ("out_val", "memory for the answer"),
    ("out_len", "bytes of that memory"),
    ("hostname", "name of the host; or memory for it, MX_MAX_HOSTNAME_LEN bytes"),
    ("local", "the memory of this side"),
    ("length", "bytes"),
    ("remote", "the memory of the other side"),
];

/// A parameter as it is declared.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name alone.
    pub name: String,
    /// Type and name, one space between words.
    pub declared: String,
}

/// Returns the parameters of a prototype.
pub fn of_prototype(prototype: &str) -> Vec<Parameter> {
    let Some((_, list)) = prototype.split_once('(') else { return Vec::new() };
    let list = list.rsplit_once(')').map_or(list, |(list, _)| list);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = list.split(',').map(words).filter(|one| !one.is_empty() && one != "void");
    all.map(|declared| {
        let from = declared.rfind([' ', '*']).map_or(0, |at| at + 1);
        Parameter { name: declared[from..].to_string(), declared }
    })
    .collect()
}

/// Returns the meaning of a parameter of a function; a type that is constant has that of one that
/// is not, unless it has its own.
pub fn meaning(of: &Header, function: &str, parameter: &Parameter) -> Option<&'static str> {
    let find = |key: &str| of.parameters.iter().find(|(known, _)| *known == key).map(|one| one.1);
    let declared = parameter.declared.as_str();
    let plain = declared.trim_start_matches("const ");
    let of_function = |what: &str| find(&format!("{function} {what}"));
    of_function(declared)
        .or_else(|| of_function(&parameter.name))
        .or_else(|| find(declared))
        .or_else(|| find(plain))
        .or_else(|| find(&parameter.name))
}
