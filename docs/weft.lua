-- Wireshark dissector for weft, protocol version 1 (PROTOCOL.md).
--
-- Use: wireshark -X lua_script:docs/weft.lua, or copy it to the personal plugin folder. On Ethernet
-- the EtherType tells ("Decode As" for another than 0x88b5). UDP ports are chosen at run time, so
-- packets are recognised by their header; "Decode As" forces it on a port.
-- The tables are checked against the code by crates/weft-core/tests/protocol_md.rs, and what is
-- recognised on captures of every link by the tests named dissector.

local VERSION = 1
local COMMON_LEN = 24
local TRAILER_LEN = 16

local DEC, HEX = base.DEC, base.HEX

-- Each row: offset, size, field, base.
local COMMON = {
    { 0, 1, "version", DEC },
    { 1, 1, "type", DEC },
    { 2, 2, "flags", HEX },
    { 4, 4, "session", HEX },
    { 8, 4, "seq", DEC },
    { 12, 4, "ack", DEC },
    { 16, 4, "credit", DEC },
    { 20, 4, "imm", DEC },
}

-- Names of the flag bits, bit 0 first.
local FLAGS = { "SYNC", "ACTIVE", "NACK", "REPLY", "DIRECT", "LAST", "ACKNOW", "DATA64", "APART" }

local TYPES = {
    [1] = { name = "HELLO", sequenced = false, length = 56, fields = {
        { 24, 8, "src_eid", HEX },
        { 32, 8, "dst_eid", HEX },
        { 40, 4, "session_offer", HEX },
        { 44, 4, "mtu", DEC },
        { 48, 1, "version_min", DEC },
        { 49, 1, "version_max", DEC },
        { 50, 2, "pad", HEX },
        { 52, 4, "credit", DEC },
    } },
    [2] = { name = "ACK", sequenced = false, length = 56, fields = {
        { 24, 32, "sack", HEX },
    } },
    [3] = { name = "EAGER", sequenced = true, length = 32, fields = {
        { 24, 8, "tag", HEX },
    } },
    [4] = { name = "EAGER_FIRST", sequenced = true, length = 48, fields = {
        { 24, 8, "tag", HEX },
        { 32, 8, "total", DEC },
        { 40, 4, "msg", DEC },
        { 44, 4, "data", HEX },
    } },
    [5] = { name = "EAGER_MORE", sequenced = true, length = 32, fields = {
        { 24, 8, "offset", DEC },
    } },
    [6] = { name = "RTS", sequenced = true, length = 56, fields = {
        { 24, 8, "tag", HEX },
        { 32, 8, "total", DEC },
        { 40, 4, "msg", DEC },
        { 44, 4, "data", HEX },
        { 48, 8, "addr", HEX },
    } },
    [7] = { name = "PULL", sequenced = true, length = 56, fields = {
        { 24, 8, "offset", DEC },
        { 32, 8, "len", DEC },
        { 40, 4, "recv", DEC },
        { 44, 4, "pad", HEX },
        { 48, 8, "addr", HEX },
    } },
    [8] = { name = "DATA", sequenced = true, length = 32, fields = {
        { 24, 8, "offset", DEC },
    } },
    [9] = { name = "DIRECT_DONE", sequenced = true, length = 40, fields = {
        { 24, 8, "offset", DEC },
        { 32, 8, "len", DEC },
    } },
    [10] = { name = "FIN", sequenced = true, length = 32, fields = {
        { 24, 4, "status", DEC },
        { 28, 4, "pad", HEX },
    } },
    [11] = { name = "PUT", sequenced = true, length = 48, fields = {
        { 24, 8, "key", HEX },
        { 32, 8, "offset", DEC },
        { 40, 8, "total", DEC },
    } },
    [12] = { name = "GET", sequenced = true, length = 48, fields = {
        { 24, 8, "key", HEX },
        { 32, 8, "offset", DEC },
        { 40, 8, "len", DEC },
    } },
    [13] = { name = "ATOMIC", sequenced = true, length = 64, fields = {
        { 24, 8, "key", HEX },
        { 32, 8, "offset", DEC },
        { 40, 8, "operand", HEX },
        { 48, 8, "compare", HEX },
        { 56, 1, "code", DEC },
        { 57, 7, "pad", HEX },
    } },
    [14] = { name = "REPLY", sequenced = true, length = 40, fields = {
        { 24, 8, "value", HEX },
        { 32, 4, "status", DEC },
        { 36, 4, "pad", HEX },
    } },
    [15] = { name = "NOP", sequenced = true, length = 24, fields = {} },
    [16] = { name = "BYE", sequenced = false, length = 32, fields = {
        { 24, 4, "reason", DEC },
        { 28, 4, "pad", HEX },
    } },
    [17] = { name = "MCAST", sequenced = true, length = 40, fields = {
        { 24, 8, "group", HEX },
        { 32, 4, "number", DEC },
        { 36, 4, "pad", HEX },
    } },
    [18] = { name = "GRANT", sequenced = true, length = 48, fields = {
        { 24, 8, "group", HEX },
        { 32, 4, "granted", DEC },
        { 36, 4, "member", DEC },
        { 40, 4, "state", DEC },
        { 44, 4, "pad", HEX },
    } },
    [19] = { name = "PROBE", sequenced = false, length = 32, fields = {
        { 24, 4, "size", DEC },
        { 28, 4, "pad", HEX },
    } },
    [20] = { name = "PIECE", sequenced = false, length = 32, fields = {
        { 24, 4, "offset", DEC },
        { 28, 4, "total", DEC },
    } },
}

-- Names of values, by field.
local VALUES = {
    type = {},
    status = {
        [0] = "OK",
        [1] = "REFUSED",
        [2] = "TRUNCATED",
        [3] = "CANCELLED",
        [4] = "NO_HANDLER",
        [5] = "UNMAPPED",
    },
    code = {
        [1] = "FETCH_ADD",
        [2] = "COMPARE_SWAP",
        [3] = "SWAP",
        [4] = "FETCH_AND",
        [5] = "FETCH_OR",
        [6] = "FETCH_XOR",
        [7] = "CLIENT",
    },
    reason = {
        [0] = "CLOSED",
        [1] = "SILENT",
        [2] = "PROTOCOL",
        [3] = "GONE",
        [4] = "LOST",
        [5] = "STUCK",
        [6] = "FLOODED",
    },
}
for number, kind in pairs(TYPES) do
    VALUES.type[number] = kind.name
end

local weft = Proto("weft", "weft message passing")
weft.prefs.trailer = Pref.bool("Security trailer", true,
    "Frames end in packet number and tag; those that weft captured itself (WEFT_PCAP) never do")

local MAKE = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [4] = ProtoField.uint32,
    [8] = ProtoField.uint64 }
local fields = {}

-- The field a row of the tables is shown as; rows of one name and size share it.
local function field_of(row)
    local size, name, shown = row[2], row[3], row[4]
    local key = name .. size
    if not fields[key] then
        local filter = "weft." .. (name == "pad" and key or name)
        if name == "pad" or not MAKE[size] then
            fields[key] = ProtoField.bytes(filter, name)
        else
            fields[key] = MAKE[size](filter, name, shown, VALUES[name])
        end
    end
    return fields[key]
end

for _, row in ipairs(COMMON) do
    field_of(row)
end
for _, kind in pairs(TYPES) do
    for _, row in ipairs(kind.fields) do
        field_of(row)
    end
end
for bit, name in ipairs(FLAGS) do
    local filter = "weft.flags." .. name:lower()
    fields["flag" .. bit] = ProtoField.bool(filter, name, 16, nil, 2 ^ (bit - 1))
end
fields.payload = ProtoField.bytes("weft.payload", "payload")
fields.pn = ProtoField.uint64("weft.trailer.pn", "pn", DEC)
fields.tag_mac = ProtoField.bytes("weft.trailer.tag", "tag")
weft.fields = fields

local bad_pad = ProtoExpert.new("weft.pad.set", "Reserved bytes are not zero",
    expert.group.MALFORMED, expert.severity.ERROR)
weft.experts = { bad_pad }

local function add_row(tree, buffer, row)
    local range = buffer(row[1], row[2])
    local item = tree:add_le(field_of(row), range)
    if row[3] == "pad" and range:bytes():tohex():find("[^0]") then
        item:add_proto_expert_info(bad_pad)
    end
    return item
end

local function flag_names(flags)
    local names = ""
    for bit, name in ipairs(FLAGS) do
        if math.floor(flags / 2 ^ (bit - 1)) % 2 == 1 then
            names = names .. "|" .. name
        end
    end
    return names
end

-- Weft's own captures have made-up addresses, of which this one is the capturing endpoint's, and
-- their frames no trailer.
local OWN_ADDRESS = "02:57:ff:00:00:00"

local function is_own_capture(pinfo)
    return tostring(pinfo.dl_src) == OWN_ADDRESS or tostring(pinfo.dl_dst) == OWN_ADDRESS
end

local function kind_of(buffer)
    if buffer:len() < COMMON_LEN or buffer(0, 1):uint() ~= VERSION then
        return nil
    end
    local kind = TYPES[buffer(1, 1):uint()]
    return kind and buffer:len() >= kind.length and kind or nil
end

function weft.dissector(buffer, pinfo, root)
    local kind = kind_of(buffer)
    if not kind then
        return 0
    end
    pinfo.cols.protocol = "weft"
    local flags = buffer(2, 2):le_uint()
    local seq = kind.sequenced and " #" .. buffer(8, 4):le_uint() or ""
    local line = string.format("%s%s%s ack #%d session 0x%x", kind.name, flag_names(flags), seq,
        buffer(12, 4):le_uint(), buffer(4, 4):le_uint())
    pinfo.cols.info = line

    local tree = root:add(weft, buffer(), "weft " .. line)
    for _, row in ipairs(COMMON) do
        local item = add_row(tree, buffer, row)
        if row[3] == "flags" then
            for bit in ipairs(FLAGS) do
                item:add_le(fields["flag" .. bit], buffer(row[1], row[2]))
            end
        end
    end
    for _, row in ipairs(kind.fields) do
        add_row(tree, buffer, row)
    end

    local stop = buffer:len()
    local trailer = weft.prefs.trailer and not is_own_capture(pinfo)
    if trailer and stop >= kind.length + TRAILER_LEN then
        stop = stop - TRAILER_LEN
        tree:add_le(fields.pn, buffer(stop, 8))
        tree:add(fields.tag_mac, buffer(stop + 8, 8))
    end
    if stop > kind.length then
        tree:add(fields.payload, buffer(kind.length, stop - kind.length))
    end
    return buffer:len()
end

-- Whether these bytes are a packet: known type and flags, unsequenced types with seq 0, reserved
-- bytes clear.
local function is_packet(buffer)
    local kind = kind_of(buffer)
    if not kind or buffer(2, 2):le_uint() >= 2 ^ #FLAGS then
        return false
    end
    if not kind.sequenced and buffer(8, 4):le_uint() ~= 0 then
        return false
    end
    for _, row in ipairs(kind.fields) do
        if row[3] == "pad" and buffer(row[1], row[2]):bytes():tohex():find("[^0]") then
            return false
        end
    end
    return true
end

-- Bytes of each packet in a datagram that the sender's kernel has not cut yet, or that the
-- receiver's has joined: packets of one session and one length, the last may be shorter.
local function packet_size(buffer)
    local all = buffer:len()
    local start = buffer:raw(4, 4)
    local at = buffer:raw():find(start, 4 + COMMON_LEN + 1, true)
    while at do
        local size = at - 5
        local good = true
        local from = size
        while good and from < all do
            local rest = buffer(from):tvb()
            good = is_packet(rest) and buffer:raw(from + 4, 4) == start
            from = from + size
        end
        if good then
            return size
        end
        at = buffer:raw():find(start, at + 1, true)
    end
    return all
end

local function udp(buffer, pinfo, root)
    if not is_packet(buffer) then
        return false
    end
    local size, at = packet_size(buffer), 0
    while at < buffer:len() do
        weft.dissector(buffer(at, math.min(size, buffer:len() - at)):tvb(), pinfo, root)
        at = at + size
    end
    return true
end

-- A multicast that members' kernels forward, in frames for a slot of its own. Checked against the
-- code by weft-link's xdp/chain/tests.rs.
local chain = Proto("weft_chain", "weft chain in the kernel")
local CHAIN_SLOT = 0xfffe
local CHAIN_VERSION = 1
local CHAIN_LEN = 38
local CHAIN_KINDS = { [0] = "DATA", [1] = "ACK", [2] = "FULL", [3] = "MISSING" }
local CHAIN = {
    { 0, 1, "version", DEC },
    { 1, 1, "kind", DEC },
    { 2, 2, "group", DEC },
    { 4, 2, "place", DEC },
    { 6, 8, "number", DEC },
    { 14, 8, "limit", DEC },
    { 22, 8, "check", HEX },
    { 30, 8, "tag", HEX },
}
local chain_fields = {}
for at, row in ipairs(CHAIN) do
    local names = row[3] == "kind" and CHAIN_KINDS or nil
    chain_fields[at] = MAKE[row[2]]("weft_chain." .. row[3], row[3], row[4], names)
end
local chain_payload = ProtoField.bytes("weft_chain.payload", "payload")
chain.fields = { chain_payload, table.unpack(chain_fields) }

function chain.dissector(buffer, pinfo, root)
    local kind = buffer:len() >= CHAIN_LEN and CHAIN_KINDS[buffer(1, 1):uint()]
    if not kind or buffer(0, 1):uint() ~= CHAIN_VERSION then
        return 0
    end
    pinfo.cols.protocol = "weft"
    local line = string.format("chain %d %s #%s", buffer(2, 2):le_uint(), kind,
        tostring(buffer(6, 8):le_uint64()))
    pinfo.cols.info = line
    local tree = root:add(chain, buffer(), "weft " .. line)
    for at, row in ipairs(CHAIN) do
        tree:add_le(chain_fields[at], buffer(row[1], row[2]))
    end
    if buffer:len() > CHAIN_LEN then
        tree:add(chain_payload, buffer(CHAIN_LEN))
    end
    return buffer:len()
end

-- On Ethernet a shim precedes the frame: slot and length; padding follows.
local ether = Proto("weft_ether", "weft on Ethernet")
local slot = ProtoField.uint16("weft_ether.slot", "slot", HEX)
local len = ProtoField.uint16("weft_ether.len", "len", DEC)
ether.fields = { slot, len }

function ether.dissector(buffer, pinfo, root)
    if buffer:len() < 4 then
        return 0
    end
    local tree = root:add(ether, buffer(0, 4))
    tree:add_le(slot, buffer(0, 2))
    tree:add_le(len, buffer(2, 2))
    local bytes = math.min(buffer(2, 2):le_uint(), buffer:len() - 4)
    if buffer(0, 2):le_uint() == CHAIN_SLOT then
        chain.dissector(buffer(4, bytes):tvb(), pinfo, root)
    elseif bytes > 0 then
        weft.dissector(buffer(4, bytes):tvb(), pinfo, root)
    end
    return buffer:len()
end

-- In a long frame: slot, bytes of each frame, bytes of all; the frames one behind the other.
local long = Proto("weft_long", "weft in a long frame")
local long_slot = ProtoField.uint16("weft_long.slot", "slot", HEX)
local each = ProtoField.uint16("weft_long.each", "each", DEC)
local all = ProtoField.uint16("weft_long.len", "len", DEC)
local padding = ProtoField.uint16("weft_long.padding", "padding", DEC)
long.fields = { long_slot, each, all, padding }

function long.dissector(buffer, pinfo, root)
    if buffer:len() < 8 then
        return 0
    end
    local tree = root:add(long, buffer(0, 8))
    tree:add_le(long_slot, buffer(0, 2))
    tree:add_le(each, buffer(2, 2))
    tree:add_le(all, buffer(4, 2))
    tree:add_le(padding, buffer(6, 2))
    local size = buffer(2, 2):le_uint()
    local stop = math.min(8 + buffer(4, 2):le_uint(), buffer:len())
    local at = 8
    while size > 0 and at < stop do
        local bytes = math.min(size, stop - at)
        weft.dissector(buffer(at, bytes):tvb(), pinfo, root)
        at = at + bytes
    end
    return buffer:len()
end

-- A request to a counter in a kernel, or its answer. Wireshark may take one for "tapa": disable
-- that protocol. Checked against the code by weft-link's xdp/counters/tests.rs.
local counters = Proto("weft_counters", "weft counter in the kernel")
local COUNTERS_VERSION = 2
local COUNTERS_LEN = 32
local COUNTERS_KINDS = { [0] = "LAST", [1] = "ADD", [2] = "ANSWER" }
local COUNTERS = {
    { 0, 1, "version", DEC },
    { 1, 1, "kind", DEC },
    { 2, 2, "client", DEC },
    { 4, 4, "counter", DEC },
    { 8, 8, "number", DEC },
    { 16, 8, "value", DEC },
    { 24, 8, "tag", HEX },
}
local counters_fields = {}
for at, row in ipairs(COUNTERS) do
    local names = row[3] == "kind" and COUNTERS_KINDS or nil
    counters_fields[at] = MAKE[row[2]]("weft_counters." .. row[3], row[3], row[4], names)
end
counters.fields = counters_fields

function counters.dissector(buffer, pinfo, root)
    local kind = buffer:len() == COUNTERS_LEN and COUNTERS_KINDS[buffer(1, 1):uint()]
    if not kind or buffer(0, 1):uint() ~= COUNTERS_VERSION then
        return 0
    end
    pinfo.cols.protocol = "weft"
    local line = string.format("counter %d %s by client %d: %s", buffer(4, 4):le_uint(), kind,
        buffer(2, 2):le_uint(), tostring(buffer(16, 8):le_uint64()))
    pinfo.cols.info = line
    local tree = root:add(counters, buffer(), "weft " .. line)
    for at, row in ipairs(COUNTERS) do
        tree:add_le(counters_fields[at], buffer(row[1], row[2]))
    end
    return COUNTERS_LEN
end

DissectorTable.get("ethertype"):add(0x88b5, ether)
DissectorTable.get("udp.port"):add(0x7766, long)
-- One heuristic for both: of several in one script Wireshark calls the last one only.
weft:register_heuristic("udp", function(buffer, pinfo, root)
    return udp(buffer, pinfo, root) or counters.dissector(buffer, pinfo, root) > 0
end)
DissectorTable.get("udp.port"):add_for_decode_as(weft)
DissectorTable.get("udp.port"):add_for_decode_as(counters)
