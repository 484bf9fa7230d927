/**
 * The messages of E2B's envd in protobuf, by the path of their call. Requests and answers have JSON's names.
 */
import type { Field, FieldType, MessageType } from '../../../lib/protobuf/message.ts';

/** `field(1, 'path', 'string')`. */
function field(number: number, name: string, type: FieldType, more: Partial<Field> = {}): Field {
  return { number, name, type, ...more };
}

function message(...fields: Field[]): MessageType {
  return { fields };
}

/** Fields of which one at a time is set. */
function oneof(...fields: Field[]): Field[] {
  return fields.map((one) => ({ ...one, oneof: 'one' }));
}

const explicit = { explicit: true };
const repeated = { repeated: true };
const EMPTY = message();

const PathRequest = message(field(1, 'path', 'string'));
const FileType = {
  names: { FILE_TYPE_UNSPECIFIED: 0, FILE_TYPE_FILE: 1, FILE_TYPE_DIRECTORY: 2, FILE_TYPE_SYMLINK: 3 },
};
const EventType = {
  names: {
    EVENT_TYPE_UNSPECIFIED: 0,
    EVENT_TYPE_CREATE: 1,
    EVENT_TYPE_WRITE: 2,
    EVENT_TYPE_REMOVE: 3,
    EVENT_TYPE_RENAME: 4,
    EVENT_TYPE_CHMOD: 5,
  },
};
const EntryInfo = message(
  field(1, 'name', 'string'),
  field(2, 'type', FileType),
  field(3, 'path', 'string'),
  field(4, 'size', 'int64'),
  field(5, 'mode', 'uint32'),
  field(6, 'permissions', 'string'),
  field(7, 'owner', 'string'),
  field(8, 'group', 'string'),
  field(9, 'modifiedTime', 'timestamp'),
  field(10, 'symlinkTarget', 'string', explicit),
  field(11, 'metadata', 'map'),
);
const EntryAnswer = message(field(1, 'entry', EntryInfo));
const WatchRequest = message(
  field(1, 'path', 'string'),
  field(2, 'recursive', 'bool'),
  field(3, 'includeEntry', 'bool'),
  field(4, 'allowNetworkMounts', 'bool'),
);
const FilesystemEvent = message(
  field(1, 'name', 'string'),
  field(2, 'type', EventType),
  field(3, 'entry', EntryInfo),
);
const WatcherName = message(field(1, 'watcherId', 'string'));

const Selector = message(...oneof(field(1, 'pid', 'uint32'), field(2, 'tag', 'string')));
const Signal = { names: { SIGNAL_UNSPECIFIED: 0, SIGNAL_SIGTERM: 15, SIGNAL_SIGKILL: 9 } };
const Pty = message(field(1, 'size', message(field(1, 'cols', 'uint32'), field(2, 'rows', 'uint32'))));
const Config = message(
  field(1, 'cmd', 'string'),
  field(2, 'args', 'string', repeated),
  field(3, 'envs', 'map'),
  field(4, 'cwd', 'string', explicit),
);
const Input = message(...oneof(field(1, 'stdin', 'bytes'), field(2, 'pty', 'bytes')));
const ProcessRequest = message(field(1, 'process', Selector));
const ProcessEvent = message(
  ...oneof(
    field(1, 'start', message(field(1, 'pid', 'uint32'))),
    field(
      2,
      'data',
      message(...oneof(field(1, 'stdout', 'bytes'), field(2, 'stderr', 'bytes'), field(3, 'pty', 'bytes'))),
    ),
    field(
      3,
      'end',
      message(
        field(1, 'exitCode', 'sint32'),
        field(2, 'exited', 'bool'),
        field(3, 'status', 'string'),
        field(4, 'error', 'string', explicit),
      ),
    ),
    field(4, 'keepalive', EMPTY),
  ),
);
const EventAnswer = message(field(1, 'event', ProcessEvent));

export interface CallMessages {
  readonly request: MessageType;
  readonly answer: MessageType;
}

export const CALL_MESSAGES: Readonly<Record<string, CallMessages>> = {
  '/process.Process/List': {
    request: EMPTY,
    answer: message(
      field(
        1,
        'processes',
        message(field(1, 'config', Config), field(2, 'pid', 'uint32'), field(3, 'tag', 'string', explicit)),
        repeated,
      ),
    ),
  },
  '/process.Process/Start': {
    request: message(
      field(1, 'process', Config),
      field(2, 'pty', Pty),
      field(3, 'tag', 'string', explicit),
      field(4, 'stdin', 'bool', explicit),
    ),
    answer: EventAnswer,
  },
  '/process.Process/Connect': { request: ProcessRequest, answer: EventAnswer },
  '/process.Process/Update': {
    request: message(field(1, 'process', Selector), field(2, 'pty', Pty)),
    answer: EMPTY,
  },
  '/process.Process/SendInput': {
    request: message(field(1, 'process', Selector), field(2, 'input', Input)),
    answer: EMPTY,
  },
  '/process.Process/StreamInput': {
    request: message(
      ...oneof(
        field(1, 'start', ProcessRequest),
        field(2, 'data', message(field(2, 'input', Input))),
        field(3, 'keepalive', EMPTY),
      ),
    ),
    answer: EMPTY,
  },
  '/process.Process/SendSignal': {
    request: message(field(1, 'process', Selector), field(2, 'signal', Signal)),
    answer: EMPTY,
  },
  '/process.Process/CloseStdin': { request: ProcessRequest, answer: EMPTY },
  '/filesystem.Filesystem/Stat': { request: PathRequest, answer: EntryAnswer },
  '/filesystem.Filesystem/MakeDir': { request: PathRequest, answer: EntryAnswer },
  '/filesystem.Filesystem/Move': {
    request: message(field(1, 'source', 'string'), field(2, 'destination', 'string')),
    answer: EntryAnswer,
  },
  '/filesystem.Filesystem/ListDir': {
    request: message(field(1, 'path', 'string'), field(2, 'depth', 'uint32')),
    answer: message(field(1, 'entries', EntryInfo, repeated)),
  },
  '/filesystem.Filesystem/Remove': { request: PathRequest, answer: EMPTY },
  '/filesystem.Filesystem/WatchDir': {
    request: WatchRequest,
    answer: message(
      ...oneof(
        field(1, 'start', EMPTY),
        field(2, 'filesystem', FilesystemEvent),
        field(3, 'keepalive', EMPTY),
      ),
    ),
  },
  '/filesystem.Filesystem/CreateWatcher': { request: WatchRequest, answer: WatcherName },
  '/filesystem.Filesystem/GetWatcherEvents': {
    request: WatcherName,
    answer: message(field(1, 'events', FilesystemEvent, repeated)),
  },
  '/filesystem.Filesystem/RemoveWatcher': { request: WatcherName, answer: EMPTY },
};
