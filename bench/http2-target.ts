/**
 * Serves HTTP/2 and HTTP/1 over TLS: `node bench/http2-target.ts ADDRESS CERTIFICATE`. A GET of `/N` is
 * answered with N bytes, any other request when all of its body has come. Prints the port.
 */
import { readFileSync } from 'node:fs';
import { createSecureServer } from 'node:http2';
import type { AddressInfo } from 'node:net';

const [address, certificate] = process.argv.slice(2) as [string, string];
const material = readFileSync(certificate);
const piece = Buffer.alloc(64 * 1024);

const server = createSecureServer(
  { key: material, cert: material, allowHTTP1: true, settings: { initialWindowSize: 1024 * 1024 } },
  (request, response) => {
    if (request.method !== 'GET') {
      request.resume().on('end', () => response.end());
      return;
    }
    let left = Number(request.url.slice(1));
    const write = () => {
      while (left > 0) {
        left -= piece.length;
        if (!response.write(piece)) return void response.once('drain', write);
      }
      response.end();
    };
    write();
  },
);
server.on('session', (session) => session.setLocalWindowSize(4 * 1024 * 1024));
server.listen(0, address, () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
