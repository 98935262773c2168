-- Wireshark dissector for Myrinet Express over Ethernet (MXoE), both dialects.
--
-- Use: wireshark -X lua_script:docs/mxoe.lua, or copy it to the personal plugin folder. No field
-- tells the dialects apart: the preference "mxoe.native" chooses (true: Open-MX by default).
-- The tables are checked against the code by crates/weft-mxoe/tests/dissector.rs.

local mxoe = Proto("mxoe", "Myrinet Express over Ethernet")
mxoe.prefs.native = Pref.bool("Native dialect", true, "As Open-MX by default; else as native MX")

local ETHERTYPE = 0x86df

-- Each row: field, size, base; a row without a base is padding. Rows may depend on the dialect.
local DEC, HEX = base.DEC, base.HEX
local ENDS = { { "to", 1, DEC }, { "from", 1, DEC }, { "generation", 1, DEC } }
local REST = { { "seq", 2, HEX }, { "ack", 2, HEX }, { "match", 8, HEX }, { "session", 4, HEX } }
local WINDOW = { { "window", 1, DEC }, { "window_seq", 1, DEC }, { "window_offset", 2, DEC } }

local function join(...)
    local all = {}
    for _, list in ipairs({ ... }) do
        for _, row in ipairs(list) do
            all[#all + 1] = row
        end
    end
    return all
end

local MESSAGE = join(ENDS, { { "len", 2, DEC }, { "checksum", 2, HEX } }, REST)
local CONNECT = join(ENDS, { { "data_len", 1, DEC }, { nil, 3 }, { "seq", 2, HEX },
    { "index", 2, DEC }, { nil, 4 } })
local HOST_REST = { { "index", 2, DEC }, { nil, 4 }, { "magic", 4, HEX }, { nil, 4 } }

-- Returns the name and the rows of a packet after its type.
local function layout(code, native, tvb)
    if code == 3 then return "HOST_QUERY", join({ { nil, 1 } }, HOST_REST) end
    if code == 4 then return "HOST_REPLY", join({ { "name_len", 1, DEC } }, HOST_REST) end
    if code == 35 then
        return "TRUC", join(ENDS, { { "data_len", 1, DEC }, { nil, 3 }, { "session", 4, HEX },
            { "kind", 1, HEX }, { nil, 1 }, { "seq", 2, HEX }, { "acked_session", 4, HEX },
            { "number", 4, DEC }, { "send_seq", 2, HEX }, { "resent", 1, DEC }, { nil, 1 } })
    end
    if code == 36 then
        if tvb:len() > 28 and tvb(28, 1):uint() == 1 then
            return "CONNECT_REPLY", join(CONNECT, { { "asking_session", 4, HEX },
                { "session", 4, HEX }, { "recv_start", 2, HEX }, { "is_reply", 1, DEC },
                { "connect_seq", 1, DEC }, { "status", 1, DEC }, { nil, 3 } })
        end
        return "CONNECT", join(CONNECT, { { "session", 4, HEX }, { "key", 4, HEX },
            { "recv_start", 2, HEX }, { "is_reply", 1, DEC }, { "connect_seq", 1, DEC },
            { nil, 4 } })
    end
    if code == 37 then return "TINY", MESSAGE end
    if code == 38 then return "SMALL", MESSAGE end
    if code == 39 then
        local len = native and { { "len", 4, DEC } } or { { "len", 2, DEC }, { nil, 2 } }
        local last = native and { { nil, 1 } } or { { "pipeline", 1, DEC } }
        return "MEDIUM", join(ENDS, len, REST, { { "fragment_len", 2, DEC },
            { "fragment", 1, DEC } }, last, { { "checksum", 2, HEX }, { nil, 2 } })
    end
    if code == 40 then return "RNDV", join(MESSAGE, { { "total", 4, DEC } }, WINDOW) end
    if code == 41 then
        local head = join(ENDS, { { "session", 4, HEX }, { "total", 4, DEC } })
        local handle = { { "handle", 4, HEX }, { "magic", 4, HEX } }
        if native then
            return "PULL", join(head, { { "window", 4, DEC }, { "window_seq", 1, DEC }, { nil, 3 },
                { "window_offset", 4, DEC } }, handle, { { "first_offset", 4, DEC },
                { "block_len", 4, DEC }, { "frame_index", 4, DEC } })
        end
        return "PULL", join(head, WINDOW, handle, { { "first_offset", 2, DEC },
            { "block_len", 2, DEC }, { "frame_index", 4, DEC } })
    end
    if code == 42 then
        return "PULL_REPLY", { { "frame_seq", 1, DEC }, { "frame_len", 2, DEC },
            { "offset", 4, DEC }, { "handle", 4, HEX }, { "magic", 4, HEX } }
    end
    if code == 43 then
        return "NOTIFY", join(ENDS, { { "session", 4, HEX }, { "total", 4, DEC },
            { "window", 1, DEC }, { "window_seq", 1, DEC }, { nil, 4 }, { "seq", 2, HEX },
            { "ack", 2, HEX }, { nil, 2 } })
    end
    local nack = { { "from", 1, DEC }, { "generation", 1, DEC }, { "refusal", 1, DEC } }
    if code == 44 then
        return "NACK_LIB", join(nack, { { nil, 5 }, { "to", 1, DEC }, { "index", 2, DEC },
            { "seq", 2, HEX }, { nil, 2 } })
    end
    if code == 45 then
        return "NACK_MCP", join(nack, { { nil, 4 }, { "handle", 4, HEX }, { "magic", 4, HEX } })
    end
    return nil
end

local f = {
    peer_index = ProtoField.uint16("mxoe.peer_index", "Receiver's index of the sender", DEC),
    type = ProtoField.uint8("mxoe.type", "Packet type", DEC),
    name = ProtoField.string("mxoe.name", "Packet"),
    refusal_name = ProtoField.string("mxoe.refusal_name", "Reason"),
    payload = ProtoField.bytes("mxoe.payload", "Payload"),
}

local SIZES = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [4] = ProtoField.uint32,
    [8] = ProtoField.uint64 }
local REFUSALS = { "bad endpoint", "closed", "bad session", "bad window" }

-- A field of each name and size: those of two sizes differ between dialects.
local function declare(rows)
    for _, row in ipairs(rows) do
        local name, size, shown = row[1], row[2], row[3]
        if name and not f[name .. size] then
            f[name .. size] = SIZES[size]("mxoe." .. name, name, shown)
        end
    end
end

local none = { len = function() return 0 end }
local reply = { len = function() return 64 end }
setmetatable(reply, { __call = function() return { uint = function() return 1 end } end })
for code = 0, 45 do
    for _, native in ipairs({ true, false }) do
        local _, rows = layout(code, native, none)
        declare(rows or {})
        _, rows = layout(code, native, reply)
        declare(rows or {})
    end
end
mxoe.fields = f

-- Returns the length of the payload of a packet.
local function payload_len(code, values)
    if code == 4 then return values.name_len end
    if code == 37 or code == 38 then return values.len end
    if code == 39 then return values.fragment_len end
    if code == 42 then return values.frame_len end
    return 0
end

function mxoe.dissector(tvb, pinfo, tree)
    if tvb:len() < 3 then return 0 end
    local code = tvb(2, 1):uint()
    local name, rows = layout(code, mxoe.prefs.native, tvb)
    pinfo.cols.protocol = "MXoE"
    local sub = tree:add(mxoe, tvb())
    sub:add(f.peer_index, tvb(0, 2))
    sub:add(f.type, tvb(2, 1))
    if not name then
        pinfo.cols.info = "type " .. code .. " has no meaning"
        return tvb:len()
    end
    sub:add(f.name, name)
    pinfo.cols.info = name
    local at, values = 3, {}
    for _, row in ipairs(rows) do
        local field, size = row[1], row[2]
        if at + size > tvb:len() then
            pinfo.cols.info = name .. ", cut short"
            return tvb:len()
        end
        if field then
            sub:add(f[field .. size], tvb(at, size))
            if size <= 4 then values[field] = tvb(at, size):uint() end
        end
        at = at + size
    end
    if values.to and values.from then
        pinfo.cols.info:append(" " .. values.from .. " -> " .. values.to)
    end
    if values.refusal then
        sub:add(f.refusal_name, REFUSALS[values.refusal] or "unknown")
    end
    local len = payload_len(code, values)
    if len > 0 and at + len <= tvb:len() then
        sub:add(f.payload, tvb(at, len))
    end
    return tvb:len()
end

DissectorTable.get("ethertype"):add(ETHERTYPE, mxoe)
