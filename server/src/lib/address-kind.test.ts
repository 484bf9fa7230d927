import { describe, expect, it } from 'vitest';
import { addressKind } from './address-kind.ts';

describe('the kind of an address', () => {
  it.each([
    ['8.8.8.8', 'public'],
    ['2606:4700::1111', 'public'],
    ['127.0.0.1', 'loopback'],
    ['127.9.9.9', 'loopback'],
    ['::1', 'loopback'],
    ['0:0:0:0:0:0:0:1', 'loopback'],
    ['::ffff:127.0.0.1', 'loopback'],
    ['::ffff:7f00:1', 'loopback'],
    ['::127.0.0.1', 'loopback'],
    ['10.1.2.3', 'private'],
    ['172.31.255.255', 'private'],
    ['172.32.0.1', 'public'],
    ['192.168.0.1', 'private'],
    ['100.64.0.1', 'private'],
    ['fd12::1', 'private'],
    ['64:ff9b::10.0.0.1', 'private'],
    ['2002:c0a8:0001::', 'private'],
    ['169.254.169.254', 'link_local'],
    ['::ffff:169.254.169.254', 'link_local'],
    ['64:ff9b::a9fe:a9fe', 'link_local'],
    ['fe80::1', 'link_local'],
    ['fe80::1%eth0', 'link_local'],
    ['fd00:ec2::254', 'link_local'],
    ['0.0.0.0', 'other'],
    ['::', 'other'],
    ['::ffff:0.0.0.0', 'other'],
    ['255.255.255.255', 'other'],
    ['224.0.0.1', 'other'],
    ['ff02::1', 'other'],
    ['example.com', 'other'],
    ['64:ff9b:1::8.8.8.8', 'private'],
    ['2001:0:4136:e378:8000:63bf:3fff:fdd2', 'other'],
    ['2001:20::1', 'other'],
    ['3fff::1', 'other'],
    ['4000::1', 'other'],
    ['5f00::1', 'other'],
    ['2002:808:808::', 'public'],
    ['64:ff9b::8.8.8.8', 'public'],
    ['192.88.99.1', 'other'],
  ])('%s is %s', (address, kind) => {
    expect(addressKind(address)).toBe(kind);
  });
});
