import { choice, percent, size, times } from './kinds.ts';
import { setting } from './setting.ts';

/** How full the machine may become, and whether room is made. */
export const machineSettings = {
  memoryOvercommit: setting(times, {
    group: 'machine',
    value: 'times',
    help: "how many times the machine's memory sandboxes may have as limits in all",
    usually: 'any',
  }),
  diskOvercommit: setting(times, {
    group: 'machine',
    value: 'times',
    help: 'the same of its disk',
    usually: 'any',
  }),
  warnAt: setting(percent, {
    group: 'machine',
    value: 'percent',
    help: 'how much of memory, disk or processes is in use when room is made and health warns',
    usually: '85',
  }),
  criticalAt: setting(percent, {
    group: 'machine',
    value: 'percent',
    help: 'how much is in use when new sandboxes are refused',
    usually: '95',
  }),
  memoryReserve: setting(size, {
    group: 'machine',
    value: 'size',
    help: 'memory that no new sandbox gets',
    usually: '256m',
  }),
  diskReserve: setting(size, {
    group: 'machine',
    value: 'size',
    help: 'disk that no new sandbox gets',
    usually: '256m',
  }),
  reclaim: setting(choice('on', 'off'), {
    group: 'machine',
    value: 'on|off',
    help: 'whether idle sandboxes are paused when memory runs short',
    choices: ['on', 'off'],
    default: 'on',
  }),
};
