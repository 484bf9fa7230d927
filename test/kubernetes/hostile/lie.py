"""A program in a sandbox that takes the place of the guest: it owns the guest's socket, and plays a script to each connection.

    lie.py serve     takes the socket, and plays /tmp/script to every connection
    lie.py again     ends the open connections, so that the server reconnects

A script is a row of steps, each a letter, four bytes of length, and that many bytes: (S)end them, send them for (E)ver, read until
the server (A)sks for that, (W)ait for ever. After the last step the connection is closed. In what is sent the number of the
stream of the last request takes the place of 0xEEEEEEEE.
"""

import os
import signal
import socket
import struct
import sys
import threading
import time

SOCKET = '/.cay-run/guest.sock'
SCRIPT = '/tmp/script'
SERVING = '/tmp/serving'
PLAYED = '/tmp/played'
STREAM = b'\xee' * 4
OPEN = 2


def exactly(connection, count):
    data = b''
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def play(connection):
    with open(SCRIPT, 'rb') as file:
        script = file.read()
    with open(PLAYED, 'wb') as file:
        file.write(script)
    at = 0
    stream = b''
    try:
        while at < len(script):
            step, (length,) = script[at : at + 1], struct.unpack('>I', script[at + 1 : at + 5])
            payload = script[at + 5 : at + 5 + length]
            at += 5 + length
            if step == b'S':
                connection.sendall(payload.replace(STREAM, stream))
            elif step == b'E':
                flood = payload.replace(STREAM, stream)
                while True:
                    connection.sendall(flood)
            elif step == b'A':
                while True:
                    head = exactly(connection, 12)
                    request = exactly(connection, struct.unpack('>I', head[:4])[0])
                    if head[4] == OPEN and payload in request:
                        stream = head[8:12]
                        break
            else:
                time.sleep(3600)
    except (OSError, EOFError):
        pass
    connection.close()


def cut():
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                if b'\0bridge\0' in file.read():
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


def serve():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET + '.new')
    listener.listen(16)
    os.rename(SOCKET + '.new', SOCKET)
    open(SERVING, 'w').close()
    cut()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=play, args=(connection,), daemon=True).start()


serve() if sys.argv[1] == 'serve' else cut()
